"""The check of shapes, and messages that name both arrays."""

import numpy as np
import pytest

from rnn_jax import shapes


def test_the_sizes_of_the_axes_are_returned():
  sizes = shapes.check(
    q_BxLxHxK=np.zeros((2, 5, 3, 4)), state_BxK=np.ones((2, 4))
  )
  assert sizes == {'B': 2, 'L': 5, 'H': 3, 'K': 4}


@pytest.mark.parametrize(
  ('arrays', 'message'),
  (
    (
      {'x_BxL': (2, 3), 'y_BxL': (2, 4)},
      r'y_BxL has shape \(2, 4\), but time \(L\) is 3 in x_BxL',
    ),
    ({'x_BxL': (2,)}, r'x_BxL has shape \(2,\): it needs 2 axes'),
    (
      {'x_Bx3': (2, 4)},
      r'x_Bx3 has shape \(2, 4\), but 3 \(3\) is 3 in its name',
    ),
    ({'x_LxL': (2, 4)}, r'x_LxL .* but time \(L\) is 2 in x_LxL'),
  ),
)
def test_disagreement_names_the_array_the_axis_and_the_other(arrays, message):
  with pytest.raises(ValueError, match=message):
    shapes.check(**{name: np.zeros(size) for name, size in arrays.items()})


def test_an_axis_of_a_given_size_is_accepted():
  assert shapes.check(loga_BxLx1=np.zeros((2, 3, 1))) == {
    'B': 2,
    'L': 3,
    '1': 1,
  }
