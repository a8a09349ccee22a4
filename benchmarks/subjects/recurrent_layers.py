"""One layer of a cell alone, as wide as its input: training and stepping.

Shapes are (B, L, D). Training is a forward and a backward pass, with the
gradients of the parameters and of x; stepping is L steps, one after the other,
each from the state that the one before left.
"""

import importlib

import jax
import jax.numpy as jnp

from benchmarks import measure
from benchmarks.subjects import models
from rnn_jax.cells import base


def training(repeats, cell, shape, impl):
  """Seconds of both passes, and what XLA says of the program."""
  layer, variables, x_BxLxD = _make(cell, shape, impl)
  state, dy_BxLxD = layer.init_state(shape[0]), jnp.cos(x_BxLxD)

  @jax.jit
  def both(variables, x_BxLxD):
    def forward(variables, x_BxLxD):
      return layer.apply(variables, state, x_BxLxD)[1]

    y_BxLxD, back = jax.vjp(forward, variables, x_BxLxD)
    return y_BxLxD, back(dy_BxLxD)

  program, values = measure.compile_program(both, variables, x_BxLxD)
  run = lambda: models.wait(program(variables, x_BxLxD))  # noqa: E731
  return values | measure.repeat(run, repeats, 3)


def stepping(repeats, cell, shape, impl='auto'):
  """Seconds of L steps within one program, and of each."""
  layer, variables, x_BxLxD = _make(cell, shape, impl)

  @jax.jit
  def steps(variables, x_LxBxD):
    def turn(state, x_BxD):
      state, y_Bx1xD = layer.apply(variables, state, x_BxD[:, None])
      return state, y_Bx1xD[:, 0]

    return jax.lax.scan(turn, layer.init_state(shape[0]), x_LxBxD)

  x_LxBxD = x_BxLxD.swapaxes(0, 1)
  program, values = measure.compile_program(steps, variables, x_LxBxD)
  run = lambda: models.wait(program(variables, x_LxBxD))  # noqa: E731
  values |= measure.repeat(run, repeats, 3)
  return values | {'seconds_per_step': values['median'] / shape[1]}


def _make(cell, shape, impl):
  """(the layer, its variables, an input)."""
  module = importlib.import_module(f'rnn_jax.cells.{cell}')
  B, _, D = shape
  layer = module.Cell(module.Config(), D, base.Plan(impl))
  x_BxLxD = jax.random.normal(jax.random.key(0), shape)
  init = jax.jit(layer.init)
  first = x_BxLxD[:, :1]
  return layer, init(jax.random.key(1), layer.init_state(B), first), x_BxLxD
