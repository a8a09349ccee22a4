"""Numbers and orders that are computed, not drawn."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from rnn_jax.data.batching import shuffle


@hypothesis.given(
  st.lists(st.integers(0, 5), min_size=1, max_size=4),
  st.integers(1, 300),
  st.integers(0, 2**63 - 1),
)
def test_every_key_permutes_all_places(keys, count, seed):
  at = np.tile(np.arange(count), len(keys))
  key = shuffle.hashed(seed, np.repeat(keys, count)).view(np.int64)
  made = shuffle.permuted(at, count, key).reshape(len(keys), count)
  assert (np.sort(made, 1) == np.arange(count)).all()
  for n, one in enumerate(keys):
    alone = shuffle.hashed(seed, one).view(np.int64)
    np.testing.assert_array_equal(
      shuffle.permuted(np.arange(count), count, alone), made[n]
    )


def test_places_follow_each_other_in_no_order():
  count, keys = 1000, 400
  at = np.tile(np.arange(count), keys)
  made = shuffle.permuted(at, count, np.repeat(np.arange(keys), count))
  made = made.reshape(keys, count)
  # Of uniform places the mean is (n - 1) / 2, within 4 standard errors.
  error = 4 * count / np.sqrt(12 * keys)
  assert (np.abs(made.mean(0) - 499.5) < 1.2 * error).all()
  neighbors = np.corrcoef(made[:, :-1].ravel(), made[:, 1:].ravel())[0, 1]
  assert abs(neighbors) < 0.01
  epochs = np.corrcoef(made[:-1].ravel(), made[1:].ravel())[0, 1]
  assert abs(epochs) < 0.01


def test_numbers_are_uniform_and_depend_on_every_column():
  numbers = shuffle.hashed(3, np.arange(100)[:, None], np.arange(100)[None])
  assert numbers.shape == (100, 100) and len(np.unique(numbers)) == 10_000
  for modulus in (7, 64, 1000):
    counts = np.bincount((numbers % np.uint64(modulus)).ravel().astype(int))
    expected = 10_000 / modulus
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - modulus) < 5 * np.sqrt(2 * modulus)
  assert numbers[2, 5] != numbers[5, 2] != shuffle.hashed(4, 5, 2)
