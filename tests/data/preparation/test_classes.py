"""Labels by name and by number."""

import pytest

from rnn_jax.data.preparation import classes


@pytest.mark.parametrize(
  ('names', 'labels', 'numbers'),
  (
    (('no', 'yes'), ('yes', 1, '0', 'no'), (1, 1, 0, 0)),
    (('1', '2', '3'), ('1', 2, '3'), (0, 1, 2)),
    (('3', '2', '1', '0'), (0, '1', 3), (3, 2, 0)),
    (('False', 'True'), (True, 'False'), (1, 0)),
  ),
)
def test_a_name_takes_precedence_over_a_number(names, labels, numbers):
  assert tuple(classes.number(label, names) for label in labels) == numbers


@pytest.mark.parametrize(
  ('names', 'label'),
  (
    (('no', 'yes'), 2),
    (('no', 'yes'), -1),
    (('no', 'yes'), True),
    (('no', 'yes'), None),
    (('no', 'yes'), 1.0),
    (('no', 'yes'), ['no']),
    (('1', '2', '3'), 0),
  ),
)
def test_other_labels_are_invalid(names, label):
  assert classes.number(label, names) is None
