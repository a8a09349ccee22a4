"""Buckets: boundaries from quantiles, rows in the bucket that fits best."""

import itertools

import grain
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.data import loader
from rnn_jax.data.batching import rarity
from rnn_jax.data.batching.layouts import buckets as buckets_lib

SHAPES = ((3, 4), (2, 8), (2, 16))


def buckets(*targets):
  """Returns batches of examples with these numbers of targets."""
  examples = grain.MapDataset.source([np.arange(n + 1) for n in targets])
  return buckets_lib.Buckets(loader.Loader(examples, 0), SHAPES)


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
  batches = buckets(4, 8, 1, 7, 9, 2)
  first, second = next(batches), next(batches)
  assert first.tokens_BxL.shape == (2, 8)
  assert first.weights_BxL.sum(1).tolist() == [8, 7]
  assert second.tokens_BxL.shape == (3, 4)
  assert second.weights_BxL.sum(1).tolist() == [4, 1, 2]
  assert second.starts_BxL.tolist() == [[1, 0, 0, 0]] * 3


def test_the_last_batch_is_padded():
  (last,) = buckets(9)
  assert last.weights_BxL.sum(1).tolist() == [9, 0]
  assert last.starts_BxL[:, 0].tolist() == [1, 1]


def test_a_long_example_is_cut_and_an_empty_one_skipped():
  batches = [*buckets(40, 0, 3)]
  assert [batch.tokens_BxL.shape for batch in batches] == [
    (2, 16),
    (3, 4),
    (2, 8),
  ]
  assert [batch.weights_BxL.sum() for batch in batches] == [32, 3, 8]


def test_rows_beyond_a_full_bucket_wait_for_the_next_batch():
  batches = [*buckets(48)]
  assert [batch.weights_BxL.sum(1).tolist() for batch in batches] == [
    [16, 16],
    [16, 0],
  ]


def test_the_state_has_positions_and_restores_waiting_rows():
  batches = buckets(3, 40, 4, 4, 5, 6)
  next(batches)
  state = batches.get_state()
  assert state['waiting'] == [[[0, 0]], [[1, 2]], []]
  other = buckets(3, 40, 4, 4, 5, 6)
  other.set_state(state)
  for batch, again in zip(batches, other, strict=True):
    np.testing.assert_array_equal(batch.targets_BxL, again.targets_BxL)


def test_rows_of_a_bucket_are_split_by_rarity():
  rows = [np.array([0, *[n % 2] * (n % 3 + 1)]) for n in range(60)]
  split = rarity.Split(rarity.Unigram(rows[:7], 3), rows, (4, 8), 2)

  def make():
    examples = loader.Loader(grain.MapDataset.source(rows), 0)
    return buckets_lib.Buckets(examples, ((5, 4), (2, 8)), split)

  batches = make()
  first = [next(batches) for _ in range(4)]
  for batch in first:
    assert batch.tokens_BxL.shape == (5, 4)
    assert len({*batch.targets_BxL[batch.weights_BxL > 0].tolist()}) == 1
  assert len({int(batch.targets_BxL.max()) for batch in first}) == 2
  state = batches.get_state()
  assert len(state['waiting']) == 4
  other = make()
  other.set_state(state)
  for batch, again in zip(batches, other, strict=True):
    np.testing.assert_array_equal(batch.targets_BxL, again.targets_BxL)
