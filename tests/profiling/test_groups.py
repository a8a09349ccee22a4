"""Groups of devices in each way that XLA writes them, against lists by hand."""

import numpy as np
import pytest

from rnn_jax.profiling import groups

NAMES = ('data', 'fsdp', 'tensor')


@pytest.mark.parametrize(
  ('text', 'expected'),
  (
    ('replica_groups={{0,1},{2,3}}, x', [[0, 1], [2, 3]]),
    ('replica_groups={}, x={0}', [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ('replica_groups=[2,4]<=[8], x', [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (
      'replica_groups=[4,2]<=[2,4]T(1,0), x',
      [[0, 4], [1, 5], [2, 6], [3, 7]],
    ),
    (
      "replica_groups=mesh['a'=4,'b'=2] {'a'}, x",
      [[0, 2, 4, 6], [1, 3, 5, 7]],
    ),
    # The upper half of an axis of four: 0 or 4, with the same lower half.
    (
      "replica_groups=mesh['a'=4,'b'=2] {'a':(1)2}, x",
      [[0, 4], [1, 5], [2, 6], [3, 7]],
    ),
    (
      "replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}, x",
      [[0, 4], [1, 5], [2, 6], [3, 7]],
    ),
    ('source_target_pairs={{0,1},{1,2}}, x', [[0, 1], [1, 2]]),
  ),
)
def test_members_of_each_group(text, expected):
  np.testing.assert_array_equal(groups.members(text, 8), expected)


def test_an_unknown_way_is_refused():
  with pytest.raises(ValueError, match='no known way.*@all'):
    groups.members('replica_groups=@all', 8)


@pytest.mark.parametrize(
  ('joined', 'expected'),
  (
    ([[0, 1], [2, 3]], ('tensor',)),
    ([[0, 2], [1, 3], [4, 6], [5, 7]], ('fsdp',)),
    ([[0, 2, 4, 6], [1, 3, 5, 7]], ('data', 'fsdp')),
    ([[0, 1], [1, 0], [6, 7]], ('tensor',)),
    ([[3]], ()),
  ),
)
def test_axes_along_which_a_group_lies(joined, expected):
  found = groups.along(np.array(joined), (2, 2, 2), NAMES)
  assert found == expected
