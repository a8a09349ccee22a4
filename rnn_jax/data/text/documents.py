"""The documents of a split, read from disk when they are asked for.

A reader knows the units of a source (a file, a JSONL row): `files`, `names`,
`sizes` in bytes, and `read(unit, start, stop)`, the UTF-8 bytes of a part.
A document is a unit or a range of it; a list of texts, such as the turns of a
dialogue, is one text with a line each. All of it pickles to a few arrays, so
that worker processes get it cheaply.
"""

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from rnn_jax import config
from rnn_jax import errors

SPLITS = ('train', 'validation', 'test')


class Reader(Protocol):
  """What a source provides."""

  files: tuple[str, ...]
  names: tuple[str, ...]
  sizes: np.ndarray
  labels: np.ndarray | None  # the class of each unit, where there are any
  difficulties: np.ndarray | None  # the number in `data.difficulty`

  def read(self, unit: int, start: int, stop: int) -> bytes:
    """Returns bytes `start` to `stop` of the unit's text."""


@dataclasses.dataclass(frozen=True, eq=False)
class Documents:
  """Document n is bytes starts[n] to stops[n] of unit units[n]."""

  reader: Reader
  units: np.ndarray
  starts: np.ndarray
  stops: np.ndarray

  def __len__(self):
    return len(self.units)

  @property
  def names(self) -> tuple[str, ...]:
    """A name for each document, the same on every machine."""
    names = self.reader.names
    return tuple(names[unit] for unit in self.units)

  @property
  def labels(self) -> np.ndarray | None:
    """The class of each document, if the source has any."""
    labels = self.reader.labels
    return None if labels is None else labels[self.units]

  @property
  def difficulties(self) -> np.ndarray | None:
    """How hard each document is, if the source was asked for it."""
    numbers = self.reader.difficulties
    return None if numbers is None else numbers[self.units]

  @property
  def sizes(self) -> np.ndarray:
    """Bytes of each document."""
    return self.stops - self.starts

  @property
  def total_bytes(self) -> int:
    """Bytes of all documents."""
    return int(self.sizes.sum())

  def read(self, n: int, start: int = 0, stop: int | None = None) -> bytes:
    """Returns document n, or a byte range of it."""
    first, last = int(self.starts[n]), int(self.stops[n])
    stop = last if stop is None else min(first + stop, last)
    return self.reader.read(int(self.units[n]), first + start, stop)

  def select(self, chosen) -> 'Documents':
    """Returns the chosen documents, by index or mask."""
    return Documents(
      self.reader, self.units[chosen], self.starts[chosen], self.stops[chosen]
    )


def join_lines(texts: Iterable[str]) -> str:
  """Returns texts as one, a line each; line ends within them become spaces."""
  return '\n'.join(' '.join(text.splitlines()) for text in texts)


def whole(reader: Reader) -> Documents:
  """Makes each unit that isn't empty a document."""
  units = np.flatnonzero(reader.sizes)
  return Documents(reader, units, np.zeros_like(units), reader.sizes[units])


def assemble(data: config.Data, open_reader) -> dict[str, Documents]:
  """Reads `data.path` and the held-out paths, and splits off the rest.

  `open_reader(path, key)` returns a Reader or raises InputError; `key` is the
  config key that a message should name. A split with its own path takes
  nothing from `data.path`: its share stays in training.
  """
  documents = whole(open_reader(data.path, 'data.path'))
  held_out = {}
  for name in SPLITS[1:]:
    key = f'{name}_path'
    if path := getattr(data, key):
      held_out[name] = whole(open_reader(path, f'data.{key}'))
      check_apart(documents, held_out[name], f'data.{key}={path!r}')
  shares = [0 if name in held_out else share for name, share in _shares(data)]
  shares[0] = 100 - sum(shares[1:])
  return split(documents, shares, data.split_by) | held_out


def split(documents: Documents, shares, by: str) -> dict[str, Documents]:
  """Cuts documents into SPLITS by percentages.

  By 'document', a hash of the name decides, so that a split doesn't depend on
  the order of files; by 'position', each document is cut in parts.

  Raises:
    InputError: too few documents to give every split its share.
  """
  if by == 'position':
    return _split_by_position(documents, shares)
  needed = np.count_nonzero(shares)
  if len(documents) < needed:
    raise errors.InputError(
      f'data.splits={tuple(shares)!r}: {len(documents)} document(s) cannot '
      f"fill {needed} splits by document: set data.split_by='position', or "
      'give more files'
    )
  hashes = [hashlib.sha256(name.encode()).digest() for name in documents.names]
  order = sorted(range(len(hashes)), key=hashes.__getitem__)
  counts = [
    max(1, len(order) * share // 100) if share else 0 for share in shares
  ]
  test = len(order) - counts[2]
  validation = test - counts[1]
  parts = order[:validation], order[validation:test], order[test:]
  return {
    name: documents.select(np.array(sorted(part), np.int64))
    for name, part in zip(SPLITS, parts, strict=True)
  }


def complete(
  found: dict[str, Documents], data: config.Data
) -> dict[str, Documents]:
  """Returns all SPLITS of a source that has some of its own.

  Without a validation split, training gives it its share of `data.splits`.

  Raises:
    InputError: there is no training split.
  """
  if 'train' not in found:
    raise errors.InputError(
      f'data.source={data.source!r} has the splits {[*found]}: one must be '
      'train'
    )
  if 'validation' not in found:
    share = data.splits[1]
    dealt = split(found['train'], (100 - share, share, 0), 'document')
    found = found | {name: dealt[name] for name in ('train', 'validation')}
  empty = found['train'].select(np.zeros(0, np.int64))
  return {'test': empty} | found


def check_apart(
  documents: Documents, held_out: Documents, argument: str
) -> None:
  """Checks that no file of `data.path` is held out as well.

  Raises:
    InputError: one is; the message begins with `argument`.
  """
  trained_on = set(map(os.path.realpath, documents.reader.files))
  for file in held_out.reader.files:
    if os.path.realpath(file) in trained_on:
      raise errors.InputError(
        f'{argument}: data.path matches {file} too: leave it out of one'
      )


def skip_to_character(text: bytes) -> int:
  """Returns how many bytes of `text` end a character begun before it."""
  skip = 0
  while skip < len(text) and text[skip] & 0xC0 == 0x80:
    skip += 1
  return skip


def _shares(data):
  return zip(SPLITS, data.splits, strict=True)


def _split_by_position(documents, shares):
  edges = [documents.starts]
  for per_cent in np.cumsum(shares)[:-1]:
    cuts = documents.sizes * per_cent // 100
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
