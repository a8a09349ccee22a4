"""Packing: first fit, whole examples, nothing lost."""

import grain
import numpy as np

from rnn_jax.data import loader
from rnn_jax.data.batching.layouts import packed as packed_lib


def packed(*targets, fit='first'):
  examples = grain.MapDataset.source([np.arange(n + 1) for n in targets])
  return packed_lib.Packed(loader.Loader(examples, 0), (2, 8), fit)


def test_an_example_goes_where_it_fits_first():
  batches = packed(5, 6, 3, 2, 4)
  batch = next(batches)
  assert batch.targets_BxL.tolist() == [
    [1, 2, 3, 4, 5, 1, 2, 3],
    [1, 2, 3, 4, 5, 6, 1, 2],
  ]
  assert batch.starts_BxL.tolist() == [
    [1, 0, 0, 0, 0, 1, 0, 0],
    [1, 0, 0, 0, 0, 0, 1, 0],
  ]
  assert batch.weights_BxL.all()
  last = next(batches)
  assert last.weights_BxL.sum(1).tolist() == [4, 0]
  assert last.starts_BxL[:, 0].tolist() == [1, 1]
  assert next(batches, None) is None


def test_best_fit_leaves_the_least_room():
  (batch,) = packed(5, 6, 2, 3, fit='best')
  assert batch.targets_BxL.tolist() == [
    [1, 2, 3, 4, 5, 1, 2, 3],
    [1, 2, 3, 4, 5, 6, 1, 2],
  ]
  first, second = packed(5, 6, 2, 3)
  assert first.weights_BxL.sum(1).tolist() == [7, 6]
  assert second.weights_BxL.sum(1).tolist() == [3, 0]


def test_an_example_that_does_not_fit_comes_first_in_the_next_batch():
  first, second = packed(6, 6, 5, 2, 4)
  assert first.weights_BxL.sum(1).tolist() == [8, 6]
  assert second.weights_BxL.sum(1).tolist() == [5, 4]


def test_the_state_has_the_positions_of_waiting_rows():
  batches = packed(6, 6, 21, 2, 4)
  next(batches)
  state = batches.get_state()
  assert state == {
    'examples': {'position': 3},
    'waiting': [[2, 0], [2, 1], [2, 2]],
  }
  other = packed(6, 6, 21, 2, 4)
  other.set_state(state)
  for batch, again in zip(batches, other, strict=True):
    np.testing.assert_array_equal(batch.targets_BxL, again.targets_BxL)


def test_empty_examples_take_no_room():
  (batch,) = packed(0, 3, 0)
  assert batch.weights_BxL.sum(1).tolist() == [3, 0]
