"""Texts that are made when they are read: questions with known answers.

    ...=answer?...=answer

What stands behind '=' is an answer, up to '?' or the end. Text n depends on
(seed, n) and the options alone, whoever reads it, and in whatever order.
"""

import string
from collections.abc import Callable

import numpy as np

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import documents
from rnn_jax.data.sources import base

ASK, MARK, FILLER = '?', '=', '.'
LETTERS = string.ascii_lowercase

Maker = Callable[[np.random.Generator, config.Synthetic], str]


class Texts:
  """The Reader of `synthetic.examples` texts, all of one length."""

  files = ()
  labels = None
  difficulties = None

  def __init__(self, make: Maker, options: config.Synthetic):
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
  data: config.Data, make: Maker, distinct: bool = False
) -> dict[str, documents.Documents]:
  """Returns the texts of each split; `distinct`: no letter occurs twice.

  Raises:
    InputError: more letters are asked for than there are, or too few texts.
  """
  base.check_no_path(data)
  options = data.synthetic
  if distinct and options.pairs > options.symbols:
    raise errors.InputError(
      f'data.synthetic.pairs={options.pairs}: data.source={data.source!r} '
      'needs a letter for each, and data.synthetic.symbols='
      f'{options.symbols}: give fewer pairs or more symbols'
    )
  found = documents.whole(Texts(make, options))
  return documents.split(found, data.splits, 'document')


def draw(rng: np.random.Generator, options: config.Synthetic) -> str:
  """Returns as many letters as there are pairs, each drawn by itself."""
  drawn = rng.integers(options.symbols, size=options.pairs)
  return ''.join(LETTERS[n] for n in drawn)
