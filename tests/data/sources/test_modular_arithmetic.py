"""Modular arithmetic: a text's class is what Python computes of it."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import modular_arithmetic


def computed(text):
  """The value of a text, as an expression of Python."""
  return eval(text) % modular_arithmetic.MODULUS


@pytest.mark.parametrize('brackets', [False, True])
def test_values_are_those_of_python(brackets):
  options = modular_arithmetic.Options(
    brackets=brackets, shortest=3, longest=30
  )
  made = [modular_arithmetic.make(n, options) for n in range(400)]
  lengths = {len(text) for text, _ in made}
  assert all(computed(text) == value for text, value in made)
  assert {value for _, value in made} == set(range(5))
  symbols = {*'01234+-*'} | ({*'()'} if brackets else set())
  assert {x for text, _ in made for x in text} == symbols
  exact, odd = set(range(3, 31)), set(range(3, 31, 2))
  assert lengths == (exact if brackets else odd)


def section(**options):
  return config_lib.section(
    'data',
    source='modular_arithmetic',
    modular_arithmetic={'examples': 40, **options},
    classes=modular_arithmetic.CLASSES,
    splits=(50, 25, 25),
  )


def test_the_test_split_has_longer_texts():
  splits = modular_arithmetic.load(section(longest=9, test_longest=21))
  texts = {
    name: [part.read(n).decode() for n in range(len(part))]
    for name, part in splits.items()
  }
  assert max(map(len, texts['train'])) <= 9 < min(map(len, texts['test']))
  assert max(map(len, texts['test'])) <= 21
  labels = [*splits['test'].labels]
  assert labels == [computed(text) for text in texts['test']]


def test_lengths_that_do_not_rise_are_refused():
  with pytest.raises(errors.InputError, match=r'longest=40, test_longest=40'):
    modular_arithmetic.load(section(test_longest=40))
