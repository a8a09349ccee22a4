"""Pools: sorted, split by the longest row; no row waits for long."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from tests.data.batching import plans

SHAPES = ((6, 4), (3, 8), (2, 12))


def pooled(*sizes, pool=2, seed=None):
  return plans.sizes('sorted', sizes, SHAPES, pool=pool, seed=seed)


def test_a_pool_is_split_from_the_longest_row_down():
  assert pooled(1, 9, 2, 5, 11, 6, 3, pool=3) == [
    (12, [11, 9]),
    (8, [6, 5, 3]),
    (4, [2, 1, 0, 0, 0, 0]),
  ]


def test_leftover_rows_lead_the_next_pool():
  assert pooled(9, 1, 2, 12, 4, 4, 10, 7, 10, 3) == [
    (12, [12, 10]),
    (12, [9, 4]),
    (4, [4, 2, 1, 3, 0, 0]),
    (12, [10, 7]),
  ]


def test_the_seed_orders_the_batches_of_a_pool():
  sizes = [n % 12 + 1 for n in range(60)]
  unshuffled, first, again, other = (
    pooled(*sizes, pool=8, seed=seed) for seed in (None, 0, 0, 1)
  )
  assert first == again != other and unshuffled not in (first, other)
  assert sorted(first[:7]) == sorted(unshuffled[:7]) == sorted(other[:7])


@hypothesis.given(st.lists(st.integers(1, 12), min_size=30, max_size=60))
def test_no_row_waits_for_more_than_a_pool(sizes):
  """All but the last rows of a pool are in its batches or in the next one's."""
  laid = plans.plan('sorted', sizes, SHAPES, pool=2)
  filled = np.cumsum([1 / SHAPES[(n > 4) + (n > 8)][0] for n in sizes])
  latest = np.maximum.accumulate(laid.item)
  for batch, item in zip(laid.batch, laid.item, strict=True):
    # Read so far: a pool is 2 batches and what is left of the one before.
    read = filled[latest[laid.batch <= batch].max()]
    assert read - filled[item] < 2 * 3 + 1
