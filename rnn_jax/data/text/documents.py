"""The documents of a split, read from disk on demand.

A reader gives access to the units of a source (files, or JSONL rows). A
document is a unit or a range of it; a list of texts, such as the turns of a
dialogue, becomes one text with one line per text. Both pickle to a few arrays,
so that sending them to worker processes is cheap.
"""

import dataclasses
import filecmp
import hashlib
import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Protocol
from typing import TypeVar

import numpy as np

from rnn_jax import config
from rnn_jax import errors

T = TypeVar('T')

AT_ONCE = 2**20  # documents whose sizes are in memory at a time
SPLITS = ('train', 'validation', 'test')
ALIASES = {'training': 'train', 'valid': 'validation', 'val': 'validation'}
ALIASES |= {'dev': 'validation', 'development': 'validation'}


def split_of(name: str) -> str:
  """Returns the split that a file's or folder's name begins with, or ''."""
  first = re.split(r'[-_.]', name.lower())[0]
  first = ALIASES.get(first, first)
  return first if first in SPLITS else ''


class Reader(Protocol):
  """What a source provides."""

  @property
  def files(self) -> tuple[str, ...]:
    """The files that the units are in."""

  @property
  def names(self) -> Sequence[str]:
    """A name for each unit, the same on every machine."""

  @property
  def sizes(self) -> np.ndarray:
    """Bytes of each unit."""

  @property
  def labels(self) -> np.ndarray | None:
    """The class of each unit, if the source has classes."""

  @property
  def difficulties(self) -> np.ndarray | None:
    """The number in `data.difficulty` of each unit, if it is read."""

  def read(self, unit: int, start: int, stop: int) -> bytes:
    """Returns bytes `start` to `stop` of the unit's text, UTF-8."""


class InMemory:
  """The Reader of texts in memory.

  Args:
    texts: of the units.
    labels: the class of each; None: they have none.
    names: of each; None: their numbers.
    files: that they are from.
  """

  difficulties = None

  def __init__(
    self,
    texts: Iterable[str],
    labels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    files: Iterable[str] = (),
  ) -> None:
    self._texts = [text.encode() for text in texts]
    self.labels = None if labels is None else np.array(labels, np.int64)
    self.names = tuple(names or map(str, range(len(self._texts))))
    self.files = tuple(files)
    self.sizes = np.array([len(text) for text in self._texts], np.int64)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    return self._texts[unit][start:stop]


@dataclasses.dataclass(frozen=True, eq=False)
class Documents:
  """Document n is bytes starts[n] to stops[n] of unit units[n].

  `tokens` are their ids, a store.tokens.Tokens; None: they aren't made yet.
  """

  reader: Reader
  units: np.ndarray
  starts: np.ndarray
  stops: np.ndarray
  tokens: Any = None

  def __len__(self) -> int:
    return len(self.units)

  @property
  def names(self) -> tuple[str, ...]:
    """A name for each document, the same on every machine."""
    names = self.reader.names
    return tuple(names[unit] for unit in self.units)

  def name(self, n: int) -> str:
    """Returns the name of document n."""
    return self.reader.names[int(self.units[n])]

  @property
  def labels(self) -> np.ndarray | None:
    """The class of each document, if the source has classes."""
    labels = self.reader.labels
    return None if labels is None else labels[self.units]

  @property
  def difficulties(self) -> np.ndarray | None:
    """The number in `data.difficulty` of each document, if it is read."""
    numbers = self.reader.difficulties
    return None if numbers is None else numbers[self.units]

  @property
  def sizes(self) -> np.ndarray:
    """Bytes of each document."""
    return self.stops - self.starts

  def sizes_of(self, start: int, stop: int) -> np.ndarray:
    """Returns the bytes of each of the documents from `start` to `stop`."""
    return self.stops[start:stop] - self.starts[start:stop]

  @property
  def total_bytes(self) -> int:
    """Bytes of all documents."""
    return int(self.sizes.sum())

  def read(self, n: int, start: int = 0, stop: int | None = None) -> bytes:
    """Returns document n, or a byte range of it."""
    first, last = int(self.starts[n]), int(self.stops[n])
    stop = last if stop is None else min(first + stop, last)
    return self.reader.read(int(self.units[n]), first + start, stop)

  def detached(self) -> 'Documents':
    """Returns the documents with what their reader needs for these only.

    So they are cheap to send to another process, if the reader has a `part`.
    """
    if not hasattr(self.reader, 'part'):
      return self
    units = np.arange(len(self))
    reader = self.reader.part(self.units)
    return Documents(reader, units, self.starts, self.stops)

  def remember(self, what: str, make: Callable[[], T]) -> T:
    """Returns make(), of JSON's types, from where the documents are kept.

    Args:
      what: which of the facts about these documents it is.
      make: reads them, which takes long if there are many.
    """
    del what
    return make()

  def with_tokens(self, tokens: Any) -> 'Documents':
    """Returns the same documents with their ids."""
    return dataclasses.replace(self, tokens=tokens)

  def select(self, chosen: np.ndarray) -> 'Documents':
    """Returns the documents of an array of indices or a mask."""
    return Documents(
      self.reader, self.units[chosen], self.starts[chosen], self.stops[chosen]
    )


def join_lines(texts: Iterable[str]) -> str:
  """Joins texts, one line each; line ends within them become spaces."""
  return '\n'.join(' '.join(text.splitlines()) for text in texts)


def whole(reader: Reader) -> Documents:
  """Returns a document for each unit that isn't empty."""
  units = np.flatnonzero(reader.sizes)
  return Documents(reader, units, np.zeros_like(units), reader.sizes[units])


def split(
  documents: Documents, percentages: Sequence[int], by: str
) -> dict[str, Documents]:
  """Divides documents into SPLITS by percentages.

  By 'document', a hash of the name decides, so that a split doesn't depend on
  the order of files; by 'position', each document is cut into parts.

  Raises:
    InputError: there are fewer documents than splits.
  """
  if by == 'position':
    return _split_by_position(documents, percentages)
  needed = np.count_nonzero(percentages)
  if len(documents) < needed:
    raise errors.InputError(
      f'data.splits={tuple(percentages)!r}: {len(documents)} document(s) '
      f"cannot fill {needed} splits by document: set data.split_by='position', "
      'or give more files'
    )
  order = shuffled(documents)
  counts = [
    max(1, len(order) * percentage // 100) if percentage else 0
    for percentage in percentages
  ]
  test = len(order) - counts[2]
  validation = test - counts[1]
  parts = order[:validation], order[validation:test], order[test:]
  return {
    name: documents.select(np.sort(part))
    for name, part in zip(SPLITS, parts, strict=True)
  }


def complete(
  given: dict[str, Documents], data: config.Data
) -> dict[str, Documents]:
  """Returns all SPLITS of a source that comes with some.

  A missing validation split is taken from training, by `data.splits`.

  Raises:
    InputError: there is no training split.
  """
  if 'train' not in given:
    raise errors.InputError(
      f'data.source={data.source!r} has the splits {[*given]}: one must be '
      'train'
    )
  if 'validation' not in given:
    percentage = data.splits[1]
    parts = split(given['train'], (100 - percentage, percentage, 0), 'document')
    given = given | {name: parts[name] for name in ('train', 'validation')}
  empty = given['train'].select(np.zeros(0, np.int64))
  return {'test': empty} | given


def locate(
  documents: Documents, places: np.ndarray
) -> Iterator[tuple[int, int]]:
  """Yields (document, byte in it) of bytes of all documents, in turn.

  Args:
    documents: one after the other.
    places: bytes of theirs, ascending.
  """
  before = 0
  for first in range(0, len(documents), AT_ONCE):
    last = min(first + AT_ONCE, len(documents))
    sizes = documents.sizes_of(first, last)
    ends = before + np.cumsum(sizes)
    for at in places[(places >= before) & (places < ends[-1])].tolist():
      n = int(np.searchsorted(ends, at, side='right'))
      yield first + n, at - int(ends[n] - sizes[n])
    before = int(ends[-1])


def check_disjoint(
  documents: Documents, held_out: Documents, argument: str
) -> None:
  """Checks that no file of `data.path` is held out, nor copies of it only.

  Raises:
    InputError: it is so; the message begins with `argument`.
  """
  trained_on = set(map(os.path.realpath, documents.reader.files))
  for file in held_out.reader.files:
    if os.path.realpath(file) in trained_on:
      raise errors.InputError(
        f'{argument}: data.path matches {file} too: remove it from one'
      )
  by_size: dict[int, list[str]] = {}
  for file in documents.reader.files:
    by_size.setdefault(os.path.getsize(file), []).append(file)
  if all(
    any(
      filecmp.cmp(file, other, shallow=False)
      for other in by_size.get(os.path.getsize(file), ())
    )
    for file in held_out.reader.files
  ):
    raise errors.InputError(
      f'{argument}: every file is a copy of one of data.path: hold others out'
    )


def skip_to_character(text: bytes) -> int:
  """Returns how many bytes of `text` belong to a character before it."""
  skip = 0
  while skip < len(text) and text[skip] & 0xC0 == 0x80:
    skip += 1
  return skip


def shuffled(documents: Documents) -> np.ndarray:
  """Returns the numbers of documents by the hashes of their names."""
  names, hashes = documents.reader.names, bytearray()
  for unit in documents.units.tolist():
    hashes += hashlib.sha256(names[unit].encode()).digest()[:16]
  # The first 16 bytes: no two of 2**50 names have the same by chance.
  high, low = np.frombuffer(hashes, '>u8').reshape(-1, 2).T
  return np.lexsort((low, high))


def _split_by_position(documents, percentages):
  edges = [documents.starts]
  for percentage in np.cumsum(percentages)[:-1]:
    cuts = documents.sizes * percentage // 100
    cuts = [
      cut + skip_to_character(documents.read(n, int(cut), int(cut) + 4))
      for n, cut in enumerate(cuts)
    ]
    edges.append(documents.starts + np.array(cuts, np.int64))
  edges.append(documents.stops)
  parts = {}
  for name, starts, stops in zip(SPLITS, edges, edges[1:], strict=False):
    part = Documents(documents.reader, documents.units, starts, stops)
    parts[name] = part.select(stops > starts)
  return parts
