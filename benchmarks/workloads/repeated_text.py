"""A source of any size: parts of the standard library's text, over and over.

Documents all have `row_bytes`, and begin at other places of the text, which is
ASCII. Nothing is on the disk but what the store keeps of it.
"""

import dataclasses
import functools
import pathlib
import sysconfig
from collections.abc import Sequence

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import documents

STEP = 7919  # bytes from the begin of a document to that of the next


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the source, of section `data` of the config."""

  total_bytes: int = config_lib.option(10**9, minimum=1)
  row_bytes: int = config_lib.option(1500, minimum=1)


class Names(Sequence[str]):
  """The numbers of documents, made when they are asked for."""

  def __init__(self, count: int) -> None:
    self._count = count

  def __len__(self) -> int:
    return self._count

  def __getitem__(self, index):
    return str(int(index))


class Rows:
  """The Reader of the documents."""

  files = ()
  labels = difficulties = None

  def __init__(self, count: int, size: int) -> None:
    self.names = Names(count)
    self.sizes = np.full(count, size, np.int64)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    text = _text()
    at = STEP * unit % len(text) + start
    size = min(stop, int(self.sizes[unit])) - start
    part = text[at % len(text) :][:size]
    while len(part) < size:
      part += text[: size - len(part)]
    return part


def raw_files(data: Config) -> dict[str, list[str]]:
  """Returns the files that the text is of."""
  del data
  return {'stdlib': [*map(str, _files())]}


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split."""
  rows = Rows(data.total_bytes // data.row_bytes, data.row_bytes)
  return documents.split(documents.whole(rows), data.splits, data.split_by)


def _files():
  return sorted(pathlib.Path(sysconfig.get_path('stdlib')).glob('*.py'))


@functools.cache
def _text():
  texts = (path.read_bytes() for path in _files())
  return b''.join(text for text in texts if text.isascii())
