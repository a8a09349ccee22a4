"""ListOps: a text's class is what Python computes of it."""

import re
import statistics

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import listops

PYTHON = {
  'M': 'max',
  'm': 'min',
  'd': 'median',
  '+': 'total',
}


def computed(text):
  """The value of a text, as an expression of Python."""
  text = re.sub('([0-9])', r'\1,', text).replace(']', ']),')
  text = re.sub(r'\[([^0-9\[])', lambda found: f'{PYTHON[found[1]]}([', text)
  names = {
    'median': lambda values: int(statistics.median(values)),
    'total': lambda values: sum(values) % 10,
  }
  return eval(text.rstrip(','), names)


def test_values_are_those_of_python():
  options = listops.Options(depth=4, arguments=4, shortest=8, longest=60)
  texts, deepest = set(), 0
  for n in range(200):
    text, value = listops.make(n, options)
    assert 8 <= len(text) <= 60 and computed(text) == value
    depth = [
      text[:t].count('[') - text[:t].count(']') for t in range(len(text))
    ]
    deepest = max(deepest, *depth)
    texts.add(text)
  assert len(texts) > 190 and deepest == 4
  assert {name for text in texts for name in text} >= {*'Mmd+0123456789[]'}


def test_documents_have_their_classes():
  data = config_lib.section(
    'data',
    source='listops',
    listops={'examples': 30},
    classes=listops.CLASSES,
    splits=(50, 50, 0),
  )
  train = listops.load(data)['train']
  values = [computed(train.read(n).decode()) for n in range(len(train))]
  assert [*train.labels] == values


def test_lengths_that_no_text_has_are_refused(monkeypatch):
  monkeypatch.setattr(listops, 'TRIES', 20)
  options = listops.Options(depth=1, arguments=2, shortest=50, longest=60)
  with pytest.raises(errors.InputError, match='shortest=50.*none of 20 texts'):
    listops.make(0, options)
