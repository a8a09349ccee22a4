"""Cells for comparison compute what their names say."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workloads import variants
from rnn_jax.cells import simple_rnn

CONFIG = simple_rnn.Config(preset='simple', heads=1, key_width=4, value_width=6)


@jax.jit
def parameters(x):
  like = simple_rnn.Cell(CONFIG, width=5)
  return like.init(jax.random.key(0), like.init_state(2), x)


@functools.partial(jax.jit, static_argnums=0)
def run(cell, x):
  """The outputs of a cell class with one and the same set of parameters."""
  params = parameters(x)
  made = cell(CONFIG, width=5)
  return made.apply(params, made.init_state(2), x)


def test_an_unrolled_scan_is_the_same_recurrence():
  x = jax.random.normal(jax.random.key(1), (2, 11, 5))
  got, want = (
    run(c, x) for c in (variants.cell('unrolled_4'), simple_rnn.Cell)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_without_recurrence_each_step_reads_its_own_inputs_and_all_of_them():
  cell = variants.cell('without_recurrence')
  x = jax.random.normal(jax.random.key(1), (2, 7, 5))
  jacobian = jax.jit(jax.jacobian(lambda x: run(cell, x)[1][0, :, 0]))(x)[:, 0]
  across = np.abs(jacobian).sum(-1)
  assert np.all((across > 0) == np.eye(7, dtype=bool))

  def total(params):
    made = cell(CONFIG, width=5)
    return jnp.sum(made.apply(params, made.init_state(2), x)[1] ** 2)

  for gradient in jax.tree.leaves(jax.jit(jax.grad(total))(parameters(x))):
    assert np.any(gradient != 0)
