"""Layers computed twice: the same numbers, less kept."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells import simple_rnn
from rnn_jax.models import blocks
from rnn_jax.models import remat
from rnn_jax.models import stack as stack_lib
from rnn_jax.ops import precision
from rnn_jax.system import host
from tests.support import close
from tests.support import draws

pytestmark = pytest.mark.slow

B, L, D, R = 4, 32, 16, 6
CELL = simple_rnn.Config('simple', heads=2, key_width=4, value_width=8)


def build(dropout=0.0, shared_layers=False, **plan):
  config = config_lib.Model(
    width=D,
    layers=R,
    mlp_width=64,
    dropout=dropout,
    biases=True,
    shared_layers=shared_layers,
  )
  plan = base.Plan(chunk_length=8, **plan)
  return stack_lib.Stack(config, CELL, plan, precision.POLICIES['float32'])


def inputs(shared_layers=False):
  stack = build(shared_layers=shared_layers)
  x, state = draws.normal(B, L, D), draws.computed(lambda: stack.init_state(B))
  return draws.parameters(stack.init, state, x, None), state, x


def traced(stack, dropout=False):
  variables, state, x = inputs(stack.config.shared_layers)
  rngs = blocks.dropout_keys(jax.random.key(1)) if dropout else {}

  def loss(variables, state, x):
    new, y = stack.apply(variables, state, x, None, rngs=rngs)
    return jnp.sin(y).sum(), (new, y)

  run = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
  return run.trace(variables, state, x), (variables, state, x)


def result(*args, **kwargs):
  program, arguments = traced(*args, **kwargs)
  return program.lower().compile()(*arguments)


assert_close = functools.partial(close.check, tolerance=3e-6)


@pytest.fixture(scope='module')
def plain():
  return result(build())


@pytest.mark.parametrize(
  'plan',
  (
    {'layers': 1, 'keep': remat.KEEPABLE},
    {'layers': 2},
    {'layers': 1, 'stored_layers': 2},
  ),
  ids=str,
)
def test_groups_of_layers_do_not_change_the_numbers(plain, plan):
  assert_close(result(build(**plan)), plain)


def test_single_layers_have_the_same_dropout_with_and_without_remat():
  kept = result(build(0.5), dropout=True)
  assert_close(result(build(0.5, layers=1), dropout=True), kept)


def test_initial_parameters_do_not_depend_on_remat():
  _, state, x = inputs()

  def program(stack):
    return str(jax.make_jaxpr(stack.init)(jax.random.key(3), state, x, None))

  assert program(build(layers=2)) == program(build())


def test_stored_runs_of_a_shared_layer_do_not_change_the_numbers():
  plain = result(build(shared_layers=True))
  stack = build(shared_layers=True, layers=1, stored_layers=1)
  assert_close(result(stack), plain)


def residuals(**plan):
  """Bytes that the forward pass saves for the backward pass."""
  variables, state, x = inputs()
  stack = build(**plan)

  def forward(variables):
    return jax.vjp(lambda v: stack.apply(v, state, x, None)[1], variables)[1]

  kept = jax.eval_shape(forward, variables)
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))


def test_saving_less_needs_fewer_bytes():
  parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(inputs()[0]))
  everything = residuals() - parameters
  one = residuals(layers=1) - parameters
  group = residuals(layers=2) - parameters
  row = B * L * D * 4  # the input of a layer
  assert group < one < everything / 4
  # Inputs of groups, and the states that enter layers.
  assert one - group == pytest.approx(R / 2 * row, rel=0.05)
  # Recomputing one layer of n saves that part of the activations.
  for stored in (1, 2):
    every = residuals(layers=1, stored_layers=stored) - parameters
    part = (one + stored * everything) / (1 + stored)
    assert every == pytest.approx(part, rel=0.05)
  named = residuals(layers=1, keep=('hidden',)) - parameters
  assert named - one == pytest.approx(R * B * L * 64 * 4, rel=0.05)
  matmuls = residuals(layers=1, keep=('matmuls',)) - parameters
  assert one < matmuls < everything


def test_offloading_does_not_change_the_numbers(plain):
  stack = build(layers=1, keep=('hidden', 'recurrence'), offload=True)
  # A CPU has one memory, and XLA drops copies between two.
  moved = str(traced(stack)[0].jaxpr).count('MemorySpace.Host')
  assert moved == len(stack.plan.keep)
  assert_close(result(stack), plain)


def test_a_device_without_host_memory_is_named(monkeypatch):
  monkeypatch.setattr(host, 'PINNED', 'elsewhere')
  plan = base.Plan(layers=1, keep=('hidden',), offload=True)
  with pytest.raises(ValueError, match="remat.offload=True: .* 'elsewhere'"):
    remat.policy(plan)
  assert remat.policy(dataclasses.replace(plan, offload=False))
