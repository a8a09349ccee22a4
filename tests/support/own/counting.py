"""A source: numbers in words, one after the other."""

import dataclasses

import numpy as np

from rnn_jax import config
from rnn_jax.data.text import documents

WORDS = ('no', 'one', 'two', 'three', 'four', 'five', 'six', 'ten', 'a', 'b')


@dataclasses.dataclass(frozen=True)
class Config(config.Data):
  """Options of the source."""

  count: int = config.option(50, minimum=3)  # documents


class Numbers:
  """The Reader of the documents."""

  files = ()
  labels = difficulties = None

  def __init__(self, count):
    self.names = tuple(map(str, range(count)))
    self.sizes = np.array([len(self._text(n)) for n in range(count)], np.int64)

  def read(self, unit, start, stop):
    return self._text(unit)[start:stop]

  def _text(self, n):
    return ' '.join(WORDS[int(digit)] for digit in str(n) * 9).encode()


def load(data):
  """Returns the documents of each split."""
  found = documents.whole(Numbers(data.count))
  return documents.split(found, data.splits, data.split_by)
