"""Positions counted by hand."""

import numpy as np

from rnn_jax.ops import positions

L = 7
STARTS = np.array([[0, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1, 0]], np.int32)
BEFORE = np.array([4, 9], np.int32)


def test_positions_count_from_the_start_of_a_document():
  state, position = positions.count(BEFORE, L, STARTS)
  wanted = [[4, 5, 6, 0, 1, 2, 3], [0, 1, 2, 3, 4, 0, 1]]
  np.testing.assert_array_equal(position, wanted)
  np.testing.assert_array_equal(state, [4, 2])


def test_without_starts_all_is_one_document():
  state, position = positions.count(BEFORE, 3)
  np.testing.assert_array_equal(position, [[4, 5, 6], [9, 10, 11]])
  np.testing.assert_array_equal(state, [7, 12])
