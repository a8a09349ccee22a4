"""Columns of numbers in files of text."""

import pytest

from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import numbers
from rnn_jax.data.preparation import schema


def kind(*values, name='n'):
  """Returns the kind of a column of these values."""
  rows = [examples.Example('f', {name: value}, '') for value in values]
  made = schema.from_example(rows[0], '', ())
  numbers.assume(made)
  for row in rows:
    numbers.observe(made, row)
  numbers.finish(made)
  return made.columns[name].kind


@pytest.mark.parametrize(
  ('values', 'expected'),
  (
    (('12', '-3', '0'), int),
    (('12', '-0.5'), float),
    (('1e-3', '2.5E+4'), float),
    (('12', '007'), str),
    (('12', ''), str),
    (('1.0e400', '1'), str),  # beyond float64
    (('9' * 18,), int),
    (('9' * 19, '1'), str),  # it would lose digits
    (('1', 'a', '2'), str),
  ),
)
def test_a_column_is_numeric_if_each_value_is_a_number(values, expected):
  assert kind(*values) is expected


def test_a_column_named_text_stays_text():
  assert kind('12', '13', name='text') is str
