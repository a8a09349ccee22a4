"""Buckets: boundaries from quantiles, rows in the bucket that fits best."""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.data.batching import difficulty
from rnn_jax.data.batching import levels as levels_lib
from rnn_jax.data.batching.layouts import buckets as buckets_lib
from tests.data.batching import plans

SHAPES = ((3, 4), (2, 8), (2, 16))


@pytest.mark.parametrize(
  ('lengths', 'count', 'expected'),
  (
    (range(1, 101), 4, (32, 56, 80, 128)),
    ([100] * 50, 4, (104, 128)),
    ([128] * 50, 4, (128,)),
    ([1] * 50, 2, (8, 128)),
    (range(1, 101), 1, (128,)),
  ),
)
def test_quantiles_are_rounded_up_and_distinct(lengths, count, expected):
  boundaries = buckets_lib.quantile_boundaries(lengths, count, 128)
  assert boundaries == expected


def test_balanced_buckets_divide_the_tokens_evenly():
  lengths = [10] * 800 + [100] * 80 + [200] * 40
  assert buckets_lib.balanced_boundaries(lengths, 3, 256) == (16, 104, 256)
  # By rows the two longer kinds, a ninth of all, would share a bucket.
  assert buckets_lib.quantile_boundaries(lengths, 3, 256) == (16, 256)


@hypothesis.given(st.lists(st.integers(1, 128), min_size=1), st.integers(1, 5))
def test_no_balanced_bucket_has_more_than_its_part(lengths, count):
  boundaries = buckets_lib.balanced_boundaries(lengths, count, 128)
  assert boundaries[-1] == 128 and len(boundaries) <= count
  assert list(boundaries) == sorted(set(boundaries))
  for number, boundary in enumerate(boundaries[:-1], 1):
    held = sum(n for n in lengths if n <= boundary)
    assert held >= number / count * sum(lengths) - 1e-6


def padded(lengths, boundaries):
  bucket = np.searchsorted(boundaries, lengths)
  return int(np.array(boundaries)[bucket].sum())


@hypothesis.given(
  st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 4)
)
def test_no_other_boundaries_pad_less(lengths, count):
  boundaries = buckets_lib.least_padding_boundaries(lengths, count, 12)
  assert boundaries[-1] == 12 and len(boundaries) <= count
  others = itertools.combinations(range(1, 12), count - 1)
  least = min(padded(lengths, (*inner, 12)) for inner in others)
  assert padded(lengths, boundaries) == least


def test_powers_of_two_end_with_the_longest():
  assert buckets_lib.power_boundaries(100) == (8, 16, 32, 64, 100)
  assert buckets_lib.power_boundaries(64) == (8, 16, 32, 64)
  assert buckets_lib.power_boundaries(5) == (5,)


def test_a_full_bucket_becomes_a_batch_of_its_shape():
  # As they fill: the longer bucket does first.
  assert plans.sizes('buckets', (4, 8, 1, 7, 9, 2, 9), SHAPES) == [
    (8, [8, 7]),
    (4, [4, 1, 2]),
    (16, [9, 9]),
  ]


def test_what_is_left_moves_to_longer_buckets():
  assert plans.sizes('buckets', (9, 3, 8, 4), SHAPES) == [
    (8, [3, 4]),
    (16, [8, 9]),
  ]
  assert plans.sizes('buckets', (3,), SHAPES) == [(16, [3, 0])]
  assert plans.sizes('buckets', (), SHAPES) == []


def test_rows_of_a_bucket_are_split_by_rarity():
  rows = [np.array([0, *[n % 2] * (n % 3 + 1)]) for n in range(60)]
  split = levels_lib.Rarity(difficulty.Unigram(rows[:7], 3), rows, (4, 8), 2)
  levels = np.array([split.level(0, row) for row in rows])
  shapes = ((5, 4), (2, 8))
  made = plans.batches(
    'buckets',
    [len(row) - 1 for row in rows],
    shapes,
    levels=levels,
    rarity_buckets=2,
  )
  kinds = [{item % 2 for ((item, _, _),) in rows} for _, rows in made]
  assert all(len(kind) == 1 for kind in kinds)
  assert (
    {len(rows) for _, rows in made} == {5} and {0} in kinds and {1} in kinds
  )
