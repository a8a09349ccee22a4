"""Rarity: the mean surprise under a smoothed unigram model."""

import math

import numpy as np
import pytest

from rnn_jax.data.batching import difficulty
from rnn_jax.data.batching import levels as levels_lib


def test_a_rarity_is_the_log_of_the_unigram_perplexity():
  model = difficulty.Unigram([np.array([9, 0, 0, 1]), np.array([2, 0])], 4)
  # Counts 3, 1, 0, 0 and one more each, of 8.
  assert model.rarity(np.array([3, 0])) == pytest.approx(math.log(8 / 4))
  expected = (math.log(8 / 4) + math.log(8 / 2) + math.log(8)) / 3
  assert model.rarity(np.array([3, 0, 1, 2])) == pytest.approx(expected)


def test_ids_that_are_only_read_count_and_classes_do_not():
  model = difficulty.Unigram([np.array([0, ~1, ~1, 5])], 4)
  same = difficulty.Unigram([np.array([0, 1, 1])], 4)
  ids = np.array([0, 1, 2])
  assert model.rarity(ids) == same.rarity(ids)
  assert model.rarity(np.array([~0, ~1, ~2, 4])) == same.rarity(ids)
  assert model.rarity(np.array([1])) == model.rarity(np.zeros(0, int)) == 0


def test_a_split_divides_the_rows_of_each_length_evenly():
  rng = np.random.default_rng(0)
  rows = [rng.integers(0, 50, n) ** 2 // 50 for n in rng.integers(2, 34, 600)]
  split = levels_lib.Rarity(difficulty.Unigram(rows, 50), rows, (8, 32, 64), 3)
  levels = [
    split.level(int(np.searchsorted((8, 32), len(row) - 1)), row)
    for row in rows
  ]
  for longest, others in ((8, 0), (32, 8)):
    inside = [
      level
      for level, row in zip(levels, rows, strict=True)
      if others < len(row) - 1 <= longest
    ]
    counts = np.bincount(inside, minlength=3)
    assert counts.min() > 0.9 * len(inside) / 3
  assert split.level(2, rows[0]) in range(3)  # a bucket without sampled rows
