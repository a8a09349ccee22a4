"""Streams: lanes continue across batches and change segment within one."""

from tests.data.batching import plans


def lanes(*sizes, rows=2):
  """Returns (segment, skip, size) of each row's pieces, by batch."""
  made = plans.batches('stream', sizes, ((rows, 4),))
  return [rows for _, rows in made]


def test_a_lane_continues_in_the_next_batch():
  assert lanes(8, 8) == [
    [[(0, 0, 4)], [(1, 0, 4)]],
    [[(0, 4, 4)], [(1, 4, 4)]],
  ]


def test_a_lane_takes_the_next_segment_within_a_batch():
  assert lanes(6, 8, 2)[1] == [[(0, 4, 2), (2, 0, 2)], [(1, 4, 4)]]


def test_of_lanes_that_end_together_the_first_takes_the_next_segment():
  assert lanes(3, 2, 9)[0] == [[(0, 0, 3), (1, 0, 1)], [(2, 0, 4)]]
  assert lanes(4, 4, 1, 2)[1] == [[(2, 0, 1), (3, 0, 2)], []]


def test_lanes_that_end_early_are_padded():
  assert lanes(9, 3) == [
    [[(0, 0, 4)], [(1, 0, 3)]],
    [[(0, 4, 4)], []],
    [[(0, 8, 1)], []],
  ]
