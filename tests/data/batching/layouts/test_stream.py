"""Streams: lanes continue across batches and change segment within one."""

import grain
import numpy as np
import pytest

from rnn_jax.data import loader
from rnn_jax.data.batching.layouts import stream


def lanes(*targets, carry_state=True, rows=2):
  examples = [100 * k + np.arange(n + 1) for k, n in enumerate(targets)]
  examples = grain.MapDataset.source(examples)
  return stream.Stream(loader.Loader(examples, 0), (rows, 4), carry_state)


def test_a_lane_continues_in_the_next_batch():
  first, second = lanes(8, 8)
  assert first.targets_BxL.tolist() == [[1, 2, 3, 4], [101, 102, 103, 104]]
  assert second.targets_BxL.tolist() == [[5, 6, 7, 8], [105, 106, 107, 108]]
  assert second.tokens_BxL.tolist() == [[4, 5, 6, 7], [104, 105, 106, 107]]
  assert first.starts_BxL.tolist() == [[1, 0, 0, 0]] * 2


def test_a_lane_takes_the_next_segment_within_a_window():
  _, second = [*lanes(6, 8, 2)]
  assert second.targets_BxL.tolist()[0] == [5, 6, 201, 202]
  assert second.tokens_BxL.tolist()[0] == [4, 5, 200, 201]
  assert second.starts_BxL.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize('carry_state', (False, True))
def test_windows_start_afresh_unless_the_state_is_carried(carry_state):
  _, second = lanes(8, 8, carry_state=carry_state)
  assert (second.starts_BxL[:, 0] == 0).all() == carry_state


def test_lanes_that_end_early_are_padded():
  batches = [*lanes(9, 3)]
  assert [batch.weights_BxL.sum(1).tolist() for batch in batches] == [
    [4, 3],
    [4, 0],
    [1, 0],
  ]
  assert batches[1].starts_BxL[1].tolist() == [1, 0, 0, 0]


def test_a_lane_without_a_segment_is_restored_without():
  batches, other = lanes(9, rows=3), lanes(9, rows=3)
  next(batches)
  state = batches.get_state()
  assert state['lanes'] == [[0, 4], [-1, 0], [-1, 0]]
  other.set_state(state)
  for batch, again in zip(batches, other, strict=True):
    np.testing.assert_array_equal(batch.weights_BxL, again.weights_BxL)
    np.testing.assert_array_equal(batch.targets_BxL, again.targets_BxL)


def test_empty_segments_are_skipped():
  first, last = lanes(0, 2, 0, 3, rows=1)
  assert first.targets_BxL.tolist() == [[101, 102, 301, 302]]
  assert last.weights_BxL.tolist() == [[1, 0, 0, 0]]
