"""Positions against the docstring's formula in float64."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax.models import positions
from tests.support import draws

B, L, D = 2, 7, 6
STARTS = np.zeros((B, L), np.int32)
STARTS[0, 3] = STARTS[1, 0] = STARTS[1, 5] = 1
BEHIND = np.array([4, 9], np.int32)
WANTED = np.array([[4, 5, 6, 0, 1, 2, 3], [0, 1, 2, 3, 4, 0, 1]])


def test_sinusoids_equal_numpy():
  at = np.array([[0, 1, 50, 4000]])
  got = jax.jit(positions.sinusoids, static_argnums=1)(at, D)
  want = np.zeros((1, 4, D))
  for i in range(D // 2):
    angle = at * 10_000.0 ** (-2 * i / D)
    want[..., 2 * i], want[..., 2 * i + 1] = np.sin(angle), np.cos(angle)
  # An angle of 4000 keeps 4e-4 of float32's digits; measured: 5e-5.
  np.testing.assert_allclose(got, want, atol=2e-4)


@pytest.mark.parametrize('kind', ('sinusoidal', 'learned'))
def test_parts_of_a_document_have_the_positions_of_the_whole(kind):
  module = positions.Positions(kind, D, 16)
  x = np.random.default_rng(0).normal(size=(B, L, D)).astype(np.float32)
  variables = draws.parameters(module.init, BEHIND, x, STARTS)
  run = jax.jit(functools.partial(module.apply, variables))
  end, whole = run(BEHIND, x, STARTS)
  np.testing.assert_array_equal(end, WANTED[:, -1] + 1)
  middle, first = run(BEHIND, x[:, :4], STARTS[:, :4])
  last, second = run(middle, x[:, 4:], STARTS[:, 4:])
  np.testing.assert_array_equal(last, end)
  np.testing.assert_array_equal(np.concatenate([first, second], 1), whole)
  if kind == 'learned':
    table = variables['params']['table']['embedding']
    np.testing.assert_allclose(whole, x + np.asarray(table)[WANTED], rtol=1e-6)


def test_positions_beyond_the_learned_table_are_nan():
  module = positions.Positions('learned', D, 3)
  state, x = np.zeros(1, np.int32), np.zeros((1, 4, D), np.float32)
  variables = draws.parameters(module.init, state, x)
  _, y = jax.jit(module.apply)(variables, state, x)
  assert np.isfinite(y[:, :3]).all() and np.isnan(y[:, 3]).all()
