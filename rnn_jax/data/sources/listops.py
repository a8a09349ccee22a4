"""ListOps: the value of nested operations on digits, of ten classes.

    [M29[m47]0]   9

A text is an operation, `M` the largest, `m` the least, `d` the median, rounded
down, `+` the sum modulo 10, on digits and operations; one character is one
symbol. Half of the arguments are digits (published: a quarter, which makes most
texts too long), and all in operations as deep as `data.listops.depth`. Texts
have `shortest` to `longest` characters.
Source: Nangia and Bowman, "ListOps: A Diagnostic Dataset for Latent Tree
Learning", 2018.
"""

import dataclasses
import random
import statistics
import typing

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

OPERATIONS = {
  'M': max,
  'm': min,
  'd': lambda values: int(statistics.median(values)),
  '+': lambda values: sum(values) % 10,
}
CLASSES = tuple('0123456789')
DIGIT = 0.5  # probability that an argument is one
TRIES = 10_000  # texts of other lengths in turn


@dataclasses.dataclass(frozen=True)
class Options(synthetic.Generated):
  """The content of a document, and the number of documents."""

  depth: int = config_lib.option(6, minimum=1, maximum=20)  # of operations
  arguments: int = config_lib.option(
    5, minimum=2, maximum=10
  )  # at most, at least 2
  shortest: int = config_lib.option(20, minimum=4)  # characters
  longest: int = config_lib.option(120, minimum=6)


@dataclasses.dataclass(frozen=True)
class Config(base.FixedClasses):
  """Options of the source, of section `data` of the config."""

  listops: Options = Options()

  fixed_classes: typing.ClassVar[tuple[str, ...]] = CLASSES


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: data.classes aren't the digits, no text has such a length, or
      there are too few examples to split.
  """
  data.check_classes()
  made = [make(n, data.listops) for n in range(data.listops.examples)]
  texts = documents.whole(documents.InMemory(*zip(*made, strict=True)))
  return documents.split(texts, data.splits, 'document')


def make(n: int, options: Options) -> tuple[str, int]:
  """Returns document n and its value.

  Raises:
    InputError: no text has such a length.
  """
  # Python's generator: NumPy's is slow for single numbers.
  rng = random.Random(f'{options.seed},{n}')
  for _ in range(TRIES):
    text = _Text(rng, options)
    value = text.write_operation(1)
    if options.shortest <= len(text.symbols) <= options.longest:
      return ''.join(text.symbols), value
  raise errors.InputError(
    f'data.listops.shortest={options.shortest}, data.listops.longest='
    f'{options.longest}: none of {TRIES:,} texts of '
    f'data.listops.depth={options.depth} has such a length: give other ones'
  )


class _Text:
  """A text that grows until it's too long, as most of great depth become."""

  def __init__(self, rng, options):
    self._rng = rng
    self._options = options
    self.symbols = []

  def write_operation(self, depth):
    """Returns the value of an operation; any, if the text is too long."""
    name = self._rng.choice([*OPERATIONS])
    self.symbols += '[', name
    count = self._rng.randint(2, self._options.arguments)
    values = [self._write_argument(depth) for _ in range(count)]
    self.symbols.append(']')
    return OPERATIONS[name](values)

  def _write_argument(self, depth):
    if (
      depth < self._options.depth
      and len(self.symbols) <= self._options.longest
      and self._rng.random() >= DIGIT
    ):
      return self.write_operation(depth + 1)
    digit = self._rng.randrange(10)
    self.symbols.append(str(digit))
    return digit
