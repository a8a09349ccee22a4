"""Reversed documents against a loop over the steps of each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import reversal
from tests.support import draws

STARTS = np.array(
  [
    [1, 0, 0, 1, 0, 1, -1, 0],  # two texts, one of a step, padding
    [0, 0, 0, 0, 1, 0, 0, 0],  # it continues an earlier row
    [1, 1, 1, 1, 0, 0, 0, 0],  # padding before the text, as in a prompt
  ],
  np.int32,
)


def by_hand(x, starts):
  """(x reversed within documents, x at each document's first step)."""
  back, first = np.empty_like(x), np.empty_like(x)
  for row in range(len(x)):
    begins = sorted({0, *np.flatnonzero(starts[row]), x.shape[1]})
    for begin, end in zip(begins, begins[1:], strict=False):
      back[row, begin:end] = x[row, begin:end][::-1]
      first[row, begin:end] = x[row, begin]
  return back, first


@pytest.mark.parametrize('packed', (True, False))
def test_each_document_is_reversed_in_its_place(packed):
  x = draws.normal(*STARTS.shape, 2)
  starts = STARTS if packed else None
  want, first = by_hand(x, STARTS if packed else 0 * STARTS)

  @jax.jit
  def both_ways(x):
    back, pull = jax.vjp(lambda x: reversal.reverse(x, starts), x)
    return back, pull(jnp.cos(x)), reversal.from_first(x, starts)

  back, (d_x,), began = both_ways(x)
  assert np.array_equal(back, want)
  assert np.array_equal(began, first)
  # The transpose of a permutation that is its own inverse is itself.
  given = STARTS if packed else 0 * STARTS
  gradient, _ = by_hand(np.asarray(jax.jit(jnp.cos)(x)), given)
  assert np.array_equal(d_x, gradient)
