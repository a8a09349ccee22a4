"""Packing: first fit, whole windows, nothing lost."""

from tests.data.batching import plans

SHAPES = ((2, 8),)


def packed(*sizes, fit='first'):
  """Returns the windows of each row of each batch."""
  made = plans.batches('packed', sizes, SHAPES, fit=fit)
  return [[[item for item, _, _ in row] for row in rows] for _, rows in made]


def test_a_window_goes_where_it_fits_first():
  assert packed(5, 6, 3, 2, 4) == [[[0, 2], [1, 3]], [[4], []]]


def test_best_fit_leaves_the_least_room():
  assert packed(5, 6, 2, 3, fit='best') == [[[0, 3], [1, 2]]]
  assert packed(5, 6, 2, 3) == [[[0, 2], [1]], [[3], []]]


def test_a_window_that_does_not_fit_comes_first_in_the_next_batch():
  assert packed(6, 6, 5, 2, 4) == [[[0, 3], [1]], [[2], [4]]]
