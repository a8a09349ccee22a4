"""Modular arithmetic: labels are what Python computes of a text's parts."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import modular_arithmetic


def computed(text):
  """The value of a text, as an expression of Python, and as a label."""
  return str(eval(text) % modular_arithmetic.MODULUS)


def closed(text, end):
  """The part of a text that the bracket before `end` closes."""
  start = end - 1
  while text[start:end].count('(') < text[start:end].count(')'):
    start -= 1
  return text[start:end]


@pytest.mark.parametrize('brackets', [False, True])
def test_labels_are_those_of_python(brackets):
  options = modular_arithmetic.Options(
    brackets=brackets, shortest=3, longest=30
  )
  made = [modular_arithmetic.make(n, options) for n in range(400)]
  for text, labels in made:
    assert len(text) == len(labels)
    for end, (symbol, label) in enumerate(zip(text, labels, strict=True), 1):
      if symbol == ')':
        assert label == computed(closed(text, end))
      elif symbol.isdigit() and not brackets:
        assert label == computed(text[:end])
      else:
        assert label == '.'
  assert {labels[-1] for _, labels in made} == {*'01234'}
  symbols = {*'01234+-*'} | ({*'()'} if brackets else set())
  assert {x for text, _ in made for x in text} == symbols
  lengths = {len(text) for text, _ in made}
  exact, odd = set(range(3, 31)), set(range(3, 31, 2))
  assert lengths == (exact if brackets else odd)


def section(**options):
  return config_lib.section(
    'data',
    source='modular_arithmetic',
    modular_arithmetic={'examples': 40, **options},
    splits=(50, 25, 25),
  )


def test_the_test_split_has_longer_texts_with_one_label_each():
  splits = modular_arithmetic.load(section(longest=9, test_longest=21))
  made = {
    name: [part.read(n).decode().split('=') for n in range(len(part))]
    for name, part in splits.items()
  }
  lengths = {
    name: [len(text) for text, _ in texts] for name, texts in made.items()
  }
  assert max(lengths['train']) <= 9 < min(lengths['test'])
  assert max(lengths['test']) <= 21
  for text, labels in made['test']:
    assert labels == '.' * (len(text) - 1) + computed(text)


def test_lengths_that_do_not_rise_are_refused():
  with pytest.raises(errors.InputError, match=r'longest=40, test_longest=40'):
    modular_arithmetic.load(section(test_longest=40))
