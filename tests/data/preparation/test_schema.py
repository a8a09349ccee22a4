"""The columns that rows show: numbers, and what several schemas have seen."""

import copy
import io

import PIL.Image
import pytest

from rnn_jax.data.preparation import schema as schema_lib
from rnn_jax.data.preparation import survey
from rnn_jax.data.tables import values as values_lib


def image(mode):
  file = io.BytesIO()
  PIL.Image.new(mode, (2, 2)).save(file, 'PNG')
  return values_lib.Image(file.getvalue())


# `given` is typed; `int`, `float` and `text` are what their spellings become.
ROWS = [
  {'given': 1, 'int': '1', 'float': '1', 'text': '1', 'label': 'b'},
  {'given': 0.5, 'int': '2', 'float': '0.5', 'text': '0.5', 'label': 'a'},
  {'given': 2, 'int': '3', 'float': '3', 'text': 'x', 'label': 'c'},
  {'given': 3, 'int': '4', 'float': '4', 'text': '4', 'label': 'a'},
]


@pytest.mark.parametrize('cuts', ((1,), (2,), (3,), (1, 2, 3)))
@pytest.mark.parametrize('colored', range(4))
def test_parts_merge_into_what_one_schema_sees(cuts, colored):
  rows = [
    values_lib.Row('', row | {'picture': image('RGB' if n == colored else 'L')})
    for n, row in enumerate(ROWS)
  ]
  begun = schema_lib.from_example(rows[0], None, ())
  begun.assume_numbers()
  whole = copy.deepcopy(begun)
  for row in rows:
    survey.observe(whole, row)
  merged = copy.deepcopy(begun)
  for begin, end in zip((0, *cuts), (*cuts, 4), strict=True):
    part = copy.deepcopy(begun)
    for row in rows[begin:end]:
      survey.observe(part, row)
    merged.merge(part)
  assert merged == whole
  assert whole.numbers == {'int': int, 'float': float}
  assert whole.columns['given'].kind is float
  assert (whole.seen, whole.colored) == ({'a', 'b', 'c'}, {'picture'})


def kind(*values, name='n'):
  """Returns the kind of a column of these values."""
  rows = [values_lib.Row('f', {name: value}, '') for value in values]
  made = schema_lib.from_example(rows[0], '', ())
  made.assume_numbers()
  for row in rows:
    made.observe(row)
  made.finish()
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
