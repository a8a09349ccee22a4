"""Texts generated on demand: questions with known answers.

    ...=answer?...=answer

An answer follows '=' and ends at '?' or at the end of the text; for task
`tagging`, '=' is between characters and their labels. Text n depends only on
(seed, n) and the options, not on the order of reading.
"""

import dataclasses
import string
from collections.abc import Callable
from typing import Generic
from typing import TypeVar

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents

ASK, MARK, FILLER = '?', '=', '.'
LETTERS = string.ascii_lowercase


@dataclasses.dataclass(frozen=True)
class Generated:
  """How many documents there are."""

  examples: int = config_lib.option(
    20_000, minimum=1
  )  # documents, in all splits
  seed: int = config_lib.option(0, minimum=0, maximum=config_lib.MAX_SEED)


@dataclasses.dataclass(frozen=True)
class Options(Generated):
  """The content of a document, and the number of documents."""

  # Pairs of a key and a value; for copying: letters.
  pairs: int = config_lib.option(4, minimum=1)
  # Characters between them and the first question.
  distance: int = config_lib.option(16, minimum=0)
  # Letters that they are drawn from.
  symbols: int = config_lib.option(8, minimum=1, maximum=26)


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of these sources, of section `data` of the config."""

  synthetic: Options = Options()

  def prompt(self) -> str:
    """Returns a text up to its first answer."""
    make = config_lib.load('data/sources', self.source, 'data.source').make
    text = make(np.random.default_rng(self.synthetic.seed), self.synthetic)
    return text[: text.index(MARK) + 1]


G = TypeVar('G', bound=Generated)
Maker = Callable[[np.random.Generator, G], str]


class Texts(Generic[G]):
  """The Reader of `options.examples` texts, all of one length."""

  files: tuple[str, ...] = ()
  labels = None
  difficulties = None

  def __init__(self, make: Maker[G], options: G) -> None:
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
  data: Config, make: Maker[Options], distinct: bool = False
) -> dict[str, documents.Documents]:
  """Returns the texts of each split.

  Args:
    data: section `data` of the config.
    make: writes a text.
    distinct: the letters of a text must all differ.

  Raises:
    InputError: a text needs more letters than there are, or there are fewer
      texts than splits.
  """
  options = data.synthetic
  if distinct and options.pairs > options.symbols:
    raise errors.InputError(
      f'data.synthetic.pairs={options.pairs}: data.source={data.source!r} '
      'needs a letter for each, and data.synthetic.symbols='
      f'{options.symbols}: give fewer pairs or more symbols'
    )
  texts = documents.whole(Texts(make, options))
  return documents.split(texts, data.splits, 'document')


def draw(rng: np.random.Generator, options: Options) -> str:
  """Returns a letter for each pair, drawn independently."""
  drawn = rng.integers(options.symbols, size=options.pairs)
  return ''.join(LETTERS[n] for n in drawn)
