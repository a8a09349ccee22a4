"""What several schemas have seen of parts of the rows."""

import copy
import io

import PIL.Image
import pytest

from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import numbers
from rnn_jax.data.preparation import schema as schema_lib
from rnn_jax.data.preparation import survey


def image(mode):
  file = io.BytesIO()
  PIL.Image.new(mode, (2, 2)).save(file, 'PNG')
  return examples.Image(file.getvalue())


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
    examples.Example(
      '', row | {'picture': image('RGB' if n == colored else 'L')}
    )
    for n, row in enumerate(ROWS)
  ]
  begun = schema_lib.from_example(rows[0], None, ())
  numbers.assume(begun)
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
