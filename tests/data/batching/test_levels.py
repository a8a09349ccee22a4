"""Centroids: rows in the level whose mean features are nearest."""

import numpy as np
import pytest

from rnn_jax.data.batching import difficulty
from rnn_jax.data.batching import levels as levels_lib


def test_features_are_length_rarity_and_distinct_tokens():
  model = difficulty.Unigram([np.array([9, 0, 0, 1])], 4)
  # Counts 3, 2, 1, 1 of 7; the first id and the class 4 are not predicted.
  ids = np.array([2, 0, ~1, 1, 0, 4])
  expected = [6, np.log([7 / 3, 7 / 2, 7 / 2, 7 / 3]).mean(), 2 / 4**0.5]
  np.testing.assert_allclose(model.measure(ids), expected)
  assert model.measure(np.array([3])).tolist() == [1, 0, 0]


def make(count):
  """Rows of 7 to 16 tokens: common and rare ones, repetitive or varied."""
  rng = np.random.default_rng(0)
  alphabets = ([0, 1], [0, 1], [*range(2, 8)], [8], [9, 10, 11, 12])
  rows = [
    np.array([0, *rng.choice(alphabets[n % 5], rng.integers(7, 16))])
    for n in range(200)
  ]
  model = difficulty.Unigram(rows, 40)
  lengths = (10, 16, 32)
  return rows, model, lengths, levels_lib.Features(model, rows, lengths, count)


def test_levels_are_the_nearest_of_the_means_of_their_rows():
  rows, model, lengths, split = make(4)
  each = np.array([model.measure(row) for row in rows])
  scaled = each / each.std(0)
  buckets = np.array([np.searchsorted(lengths, len(row) - 1) for row in rows])
  levels = np.array(
    [split.level(b, row) for b, row in zip(buckets, rows, strict=True)]
  )
  for bucket in (0, 1):
    inside, level = scaled[buckets == bucket], levels[buckets == bucket]
    used = np.unique(level)  # a centroid may end without rows
    assert len(used) == 3 + bucket
    means = np.array([inside[level == n].mean(0) for n in used])
    away = ((inside[:, None] - means[None]) ** 2).sum(-1)
    assert level.tolist() == used[away.argmin(1)].tolist()
  # A bucket without sampled rows has the centroids of all.
  assert len({split.level(2, row) for row in rows}) >= 3


@pytest.mark.filterwarnings('error')
def test_more_centroids_than_rows_leave_some_levels_empty():
  rows = [np.array([0, 1, 1]), np.array([0, 1, 1])]
  split = levels_lib.Features(difficulty.Unigram(rows, 2), rows, (4,), 3)
  assert split.count == 3 and split.level(0, rows[0]) in range(3)
