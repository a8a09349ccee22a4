"""Pools: sorted, split by the longest row; no row waits for long."""

import collections
import itertools
import json

import grain
import hypothesis
import numpy as np
from hypothesis import strategies as st

from rnn_jax.data import loader
from rnn_jax.data.batching.layouts import sorted as sorted_lib

SHAPES = ((6, 4), (3, 8), (2, 12))


def pooled(*targets, pool=2, shapes=SHAPES, seed=None):
  """Returns batches of examples with these numbers of distinct targets."""
  ends = np.cumsum([0, *targets])
  examples = grain.MapDataset.source(
    [np.arange(a, b + 1) for a, b in zip(ends, ends[1:], strict=False)]
  )
  return sorted_lib.Pooled(loader.Loader(examples, 0), shapes, pool, seed)


def lengths(batch):
  return [int(n) for n in batch.weights_BxL.sum(1)]


def test_a_pool_is_split_from_the_longest_row_down():
  first, second, third = pooled(1, 9, 2, 5, 11, 6, 3, pool=3)
  assert lengths(first) == [11, 9] and first.tokens_BxL.shape == (2, 12)
  assert lengths(second) == [6, 5, 3] and second.tokens_BxL.shape == (3, 8)
  assert lengths(third) == [2, 1, 0, 0, 0, 0]
  assert third.starts_BxL.tolist() == [[1, 0, 0, 0]] * 6


def test_leftover_rows_lead_the_next_pool():
  batches = pooled(9, 1, 2, 12, 4, 4, 10, 7, 10, 3)
  assert [lengths(next(batches)) for _ in range(2)] == [[12, 10], [9, 4]]
  state = batches.get_state()
  assert state == {'examples': {'position': 0}, 'left': [], 'done': 2}
  assert lengths(next(batches)) == [4, 2, 1, 3, 0, 0]
  state = batches.get_state()
  left = [[5, 0], [2, 0], [1, 0]]
  assert state == {'examples': {'position': 7}, 'left': left, 'done': 1}
  assert lengths(next(batches)) == [10, 7]


def test_a_pool_of_one_batch_pads_consecutive_rows():
  shapes = tuple((2, length) for _, length in SHAPES)
  by_batch = [lengths(b) for b in pooled(1, 9, 2, 5, 11, pool=1, shapes=shapes)]
  assert by_batch == [[9, 1], [5, 2], [11, 0]]


def test_the_seed_orders_the_batches_of_a_pool():
  targets = [n % 12 + 1 for n in range(60)]
  by_seed = [
    [*map(lengths, pooled(*targets, pool=8, seed=seed))]
    for seed in (None, 0, 0, 1)
  ]
  unshuffled, first, again, other = by_seed
  assert first == again != other and unshuffled not in (first, other)
  first_pools = [sorted(batches[:7]) for batches in (unshuffled, first, other)]
  assert first_pools[0] == first_pools[1] == first_pools[2]


def test_an_end_without_rows_ends():
  assert not [*pooled()] and not [*pooled(0, 0)]


@hypothesis.given(
  st.lists(st.integers(0, 30), max_size=40),
  st.integers(1, 4),
  st.integers(0, 9),
)
def test_every_token_comes_once_wherever_it_resumes(targets, pool, stop):
  batches = pooled(*targets, pool=pool, seed=3)
  before = [*itertools.islice(batches, stop)]
  state = json.loads(json.dumps(batches.get_state()))
  rest = [*batches]
  batches.set_state(state)
  for batch, again in zip(rest, batches, strict=True):
    np.testing.assert_array_equal(batch.targets_BxL, again.targets_BxL)
  counts = collections.Counter()
  for batch in before + rest:
    assert batch.tokens_BxL.shape in SHAPES and batch.weights_BxL.any()
    counts.update(batch.targets_BxL[batch.weights_BxL > 0].tolist())
  assert counts == dict.fromkeys(range(1, sum(targets) + 1), 1)


@hypothesis.given(st.lists(st.integers(1, 12), min_size=30, max_size=60))
def test_no_row_waits_for_more_than_a_pool(targets):
  batches = pooled(*targets)
  seen = set()
  ends = np.cumsum(targets)
  for batch in batches:
    began = batches.get_state()['examples']['position']
    left = {position for position, _ in batches.get_state()['left']}
    targets_here = batch.targets_BxL[batch.weights_BxL > 0]
    seen |= set(np.searchsorted(ends, targets_here).tolist())
    assert seen | left >= set(range(began))
