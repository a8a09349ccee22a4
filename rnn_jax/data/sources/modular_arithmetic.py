"""Modular arithmetic: the value of an expression modulo 5, of five classes.

    2*3-1+4      4           (2-(3*4))      0

One character is one symbol. Without brackets products come before sums and
differences, and a text has an odd number of characters. With them each
operation has its own pair, and a minus may stand before a digit. Texts have
`shortest` to `longest` characters, all lengths equally likely; those of the
test split are longer than any in training, up to `test_longest`.

Without brackets a finite state is enough, the sum and a pending product; with
them a model needs a stack.
Source: Deletang et al., "Neural Networks and the Chomsky Hierarchy", 2023.
"""

import dataclasses
import operator
import random
import typing

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

MODULUS = 5
CLASSES = tuple(map(str, range(MODULUS)))
OPERATIONS = {'+': operator.add, '-': operator.sub, '*': operator.mul}


@dataclasses.dataclass(frozen=True)
class Options(synthetic.Generated):
  """The content of a document, and the number of documents."""

  brackets: bool = False
  shortest: int = config_lib.option(3, minimum=3)  # characters
  longest: int = config_lib.option(40, minimum=3, maximum=1000)
  # Of the test split, whose shortest text has longest + 1.
  test_longest: int = config_lib.option(160, minimum=4, maximum=1000)


@dataclasses.dataclass(frozen=True)
class Config(base.FixedClasses):
  """Options of the source, of section `data` of the config."""

  modular_arithmetic: Options = Options()

  fixed_classes: typing.ClassVar[tuple[str, ...]] = CLASSES


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: data.classes aren't the five values, the lengths don't rise, or
      there are too few examples to split.
  """
  options = data.modular_arithmetic
  data.check_classes()
  shortest, longest = options.shortest, options.longest
  if not shortest <= longest < options.test_longest:
    raise errors.InputError(
      f'data.modular_arithmetic: shortest={shortest}, longest={longest}, '
      f'test_longest={options.test_longest}: give lengths that rise'
    )
  texts = _texts(range(options.examples), options)
  splits = documents.split(texts, data.splits, 'document')
  longer = dataclasses.replace(
    options, shortest=longest + 1, longest=options.test_longest
  )
  return splits | {'test': _texts(splits['test'].units, longer)}


def _texts(numbers, options):
  made = [make(n, options) for n in numbers]
  return documents.whole(documents.InMemory(*zip(*made, strict=True)))


def make(n: int, options: Options) -> tuple[str, int]:
  """Returns document n and its value."""
  # Python's generator: NumPy's is slow for single numbers.
  rng = random.Random(f'{options.seed},{n}')
  length = rng.randint(options.shortest, options.longest)
  if options.brackets:
    text, value = _bracketed(rng, length)
  else:
    odd = length | 1
    text, value = _flat(rng, odd if odd <= options.longest else odd - 2)
  return text, value % MODULUS


def _flat(rng, length):
  """Returns (text, value) without brackets, of an odd length."""
  text, total, product = '', 0, 1
  for n in range((length + 1) // 2):
    name, digit = rng.choice([*OPERATIONS]) if n else '', rng.randrange(MODULUS)
    text += f'{name}{digit}'
    if name == '*':
      product *= digit
    else:
      total += product if n else 0
      product = -digit if name == '-' else digit
    product %= MODULUS
  return text, total + product


def _bracketed(rng, length):
  """Returns (text, value) with brackets, of exactly `length`."""
  if length <= 2:
    digit = rng.randrange(MODULUS)
    return ('', '-')[length - 1] + str(digit), (1, -1)[length - 1] * digit
  if length <= 4:
    text, value = _bracketed(rng, length - 2)
    return f'({text})', value
  name, left = rng.choice([*OPERATIONS]), rng.randint(1, length - 4)
  a, b = _bracketed(rng, left), _bracketed(rng, length - 3 - left)
  value = OPERATIONS[name](a[1], b[1]) % MODULUS
  return f'({a[0]}{name}{b[0]})', value
