"""Modular arithmetic: the value of an expression modulo 5, as it is read.

    2*3-1+4=2.1.0.4           (2-(3*4))=.......20

One character is one symbol. Without brackets products come before sums and
differences, a text has an odd number of characters, and each digit is labelled
with the value of the text so far. With them each operation has its own pair, a
minus may stand before a digit, and each closing bracket is labelled with the
value of what it closes. Texts have `shortest` to `longest` characters, all
lengths equally likely. Those of the test split are longer than any in training,
up to `test_longest`, and only their own value is a label.

Without brackets a finite state is enough, the sum and a pending product; with
them a model needs a stack.
Source: Deletang et al., "Neural Networks and the Chomsky Hierarchy", 2023, with
a label for each text.
"""

import dataclasses
import operator
import random

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

MODULUS = 5
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
class Config(config_lib.Data):
  """Options of the source, of section `data` of the config."""

  modular_arithmetic: Options = Options()


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: the lengths don't rise, or there are too few examples to split.
  """
  options = data.modular_arithmetic
  shortest, longest = options.shortest, options.longest
  if not shortest <= longest < options.test_longest:
    raise errors.InputError(
      f'data.modular_arithmetic: shortest={shortest}, longest={longest}, '
      f'test_longest={options.test_longest}: give lengths that rise'
    )
  made = [spell(*make(n, options)) for n in range(options.examples)]
  splits = documents.split(_whole(made), data.splits, 'document')
  longer = dataclasses.replace(
    options, shortest=longest + 1, longest=options.test_longest
  )
  tests = [_with_last_only(*make(n, longer)) for n in splits['test'].units]
  return splits | {'test': _whole(tests)}


def _whole(texts):
  return documents.whole(documents.InMemory(texts))


def _with_last_only(text, labels):
  return spell(text, synthetic.FILLER * (len(text) - 1) + labels[-1])


def spell(text: str, labels: str) -> str:
  """Returns the document of a text and its labels."""
  return text + synthetic.MARK + labels


def make(n: int, options: Options) -> tuple[str, str]:
  """Returns text n and its labels, a character each."""
  # Python's generator: NumPy's is slow for single numbers.
  rng = random.Random(f'{options.seed},{n}')
  length = rng.randint(options.shortest, options.longest)
  if options.brackets:
    text, labels, _ = _bracketed(rng, length)
    return text, labels
  odd = length | 1
  return _flat(rng, odd if odd <= options.longest else odd - 2)


def _flat(rng, length):
  """Returns (text, labels) without brackets, of an odd length."""
  text, labels, total, product = '', '', 0, 1
  for n in range((length + 1) // 2):
    name, digit = rng.choice([*OPERATIONS]) if n else '', rng.randrange(MODULUS)
    if name == '*':
      product *= digit
    else:
      total += product if n else 0
      product = -digit if name == '-' else digit
    product %= MODULUS
    text += f'{name}{digit}'
    labels += synthetic.FILLER * len(name) + _named(total + product)
  return text, labels


def _bracketed(rng, length):
  """Returns (text, labels, value) with brackets, of exactly `length`."""
  if length <= 2:
    digit = rng.randrange(MODULUS)
    text, value = (
      ('', '-')[length - 1] + str(digit),
      (1, -1)[length - 1] * digit,
    )
    return text, synthetic.FILLER * length, value
  if length <= 4:
    text, labels, value = _bracketed(rng, length - 2)
  else:
    name, left = rng.choice([*OPERATIONS]), rng.randint(1, length - 4)
    a, b = _bracketed(rng, left), _bracketed(rng, length - 3 - left)
    text = a[0] + name + b[0]
    labels = a[1] + synthetic.FILLER + b[1]
    value = OPERATIONS[name](a[2], b[2])
  return f'({text})', synthetic.FILLER + labels + _named(value), value


def _named(value):
  return str(value % MODULUS)
