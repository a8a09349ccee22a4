"""Slices of the rows, run one after another, add up to the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.training import accumulation


def run(carry, batch, key):
  """A loss with a carry, laid out as a model's: positions, first, others."""
  del key
  position, (first, stacked) = carry
  seen = stacked.sum(0) + (0.0 if first is None else first)
  first = None if first is None else first + batch['x'].sum(1)
  sums = {
    'sum': (seen * batch['x'].sum(1)).sum(),
    'rows': jnp.sum(seen * 0 + 1),
  }
  stacked = stacked * 2 + batch['x'][None, :, 0]
  return sums, (position + 1, (first, stacked))


@pytest.mark.parametrize(
  ('parts', 'with_first'), ((1, True), (4, True), (8, False))
)
def test_sums_and_carries_equal_those_of_the_whole(parts, with_first):
  rng = np.random.default_rng(0)
  batch = {'x': rng.normal(size=(8, 5)).astype(np.float32), 'label': None}
  first = rng.normal(size=8).astype(np.float32) if with_first else None
  stacked = rng.normal(size=(3, 8)).astype(np.float32)
  carry = (np.arange(8), (first, stacked))
  state_axes = 'B', ('B' if with_first else None, 'RxB')
  key = jax.random.key(0)
  want, want_carry = run(carry, batch, key)
  got, got_carry = jax.jit(accumulation.accumulate, static_argnums=(0, 1, 3))(
    run, parts, carry, state_axes, batch, key
  )
  np.testing.assert_allclose(got['sum'], want['sum'], rtol=1e-5)
  assert got['rows'] == 8
  for a, b in zip(
    jax.tree.leaves(got_carry), jax.tree.leaves(want_carry), strict=True
  ):
    np.testing.assert_array_equal(a, b)


def test_each_slice_has_another_key():
  def draw(carry, batch, key):
    return {'x': jax.random.normal(key, (1,)), 'n': batch.sum() * 0}, carry

  batch = jnp.ones((4, 1))
  sums, _ = accumulation.accumulate(
    draw, 2, None, None, batch, jax.random.key(0)
  )
  parts = [
    jax.random.normal(jax.random.fold_in(jax.random.key(0), i), (1,))
    for i in range(2)
  ]
  np.testing.assert_allclose(sums['x'], sum(parts), rtol=1e-6)
  assert parts[0] != parts[1]
