"""The order: positions in sequence, restarted anywhere."""

import grain
import numpy as np
import pytest

from rnn_jax.data import ordered


def examples(count=None):
  numbers = grain.MapDataset.range(count or 10)
  numbers = numbers if count else numbers.shuffle(0).repeat()
  return numbers.map(lambda n: np.array([n, n + 1]))


def test_positions_count_up_from_where_the_state_says():
  order = ordered.Ordered(examples(), workers=0)
  first = [next(order) for _ in range(25)]
  assert [position for position, _ in first] == [*range(25)]
  state = order.get_state()
  assert state == {'position': 25}
  order.set_state({'position': 7})
  for (_, ids), (_, again) in zip(first[7:], order, strict=False):
    np.testing.assert_array_equal(ids, again)
  np.testing.assert_array_equal(order.make(3), first[3][1])


def test_a_finite_order_ends_and_stays_ended():
  order = ordered.Ordered(examples(3), workers=0)
  assert [position for position, _ in order] == [0, 1, 2]
  assert next(order, None) is None
  order.set_state({'position': 2})
  assert [position for position, _ in order] == [2]


def test_a_closed_order_says_so():
  order = ordered.Ordered(examples(), workers=0)
  order.close()
  with pytest.raises(ValueError, match='closed'):
    next(order)


@pytest.mark.parametrize('start', (0, 5, 39))
def test_workers_end_a_finite_order_anywhere(start):
  order = ordered.Ordered(examples(40), workers=2)
  order.set_state({'position': start})
  assert [int(ids[0]) for _, ids in order] == [*range(start, 40)]
  order.close()
