"""Texts that are made when they are read: questions with known answers.

    ...=answer?...=answer

What follows '=' is an answer, up to '?' or the end. Text n depends on
(seed, n) and the options alone, whoever reads it, and in whatever order.
"""

import dataclasses
import string
from collections.abc import Callable

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents

ASK, MARK, FILLER = '?', '=', '.'
LETTERS = string.ascii_lowercase


@dataclasses.dataclass(frozen=True)
class Options:
  """What is in a document, and how many there are."""

  # Keys with their values; of copying: letters.
  pairs: int = config_lib.option(4, least=1)
  # Characters between them and the first question.
  distance: int = config_lib.option(16, least=0)
  # Letters that they are drawn from.
  symbols: int = config_lib.option(8, least=1, most=26)
  examples: int = config_lib.option(20_000, least=1)  # documents, of all splits
  # Another one makes other documents.
  seed: int = config_lib.option(0, least=0, most=config_lib.MAX_SEED)


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of these sources, of section `data` of the config."""

  synthetic: Options = Options()


Maker = Callable[[np.random.Generator, Options], str]


class Texts:
  """The Reader of `synthetic.examples` texts, all of one length."""

  files = ()
  labels = None
  difficulties = None

  def __init__(self, make: Maker, options: Options):
    self._make = make
    self._options = options
    self.sizes = np.full(options.examples, len(self._text(0)), np.int64)

  @property
  def names(self) -> tuple[str, ...]:
    return tuple(map(str, range(len(self.sizes))))

  def read(self, unit: int, start: int, stop: int) -> bytes:
    return self._text(unit)[start:stop]

  def _text(self, n):
    rng = np.random.default_rng((self._options.seed, n))
    return self._make(rng, self._options).encode()


def load(
  data: Config, make: Maker, distinct: bool = False
) -> dict[str, documents.Documents]:
  """Returns the texts of each split; `distinct`: no letter occurs twice.

  Raises:
    InputError: more letters are asked for than there are, or too few texts.
  """
  options = data.synthetic
  if distinct and options.pairs > options.symbols:
    raise errors.InputError(
      f'data.synthetic.pairs={options.pairs}: data.source={data.source!r} '
      'needs a letter for each, and data.synthetic.symbols='
      f'{options.symbols}: give fewer pairs or more symbols'
    )
  found = documents.whole(Texts(make, options))
  return documents.split(found, data.splits, 'document')


def draw(rng: np.random.Generator, options: Options) -> str:
  """Returns as many letters as there are pairs, each drawn by itself."""
  drawn = rng.integers(options.symbols, size=options.pairs)
  return ''.join(LETTERS[n] for n in drawn)
