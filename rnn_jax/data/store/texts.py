"""The text of a corpus in one file for each split, and an index of documents.

train.text          the documents, one after the other, UTF-8
train.ends          where each ends, int64
train.labels        the class of each, if the source has classes
train.difficulties  the number in `data.difficulty` of each, if it is read
train.names         their names, one after the other
train.name_ends     where each ends, int64
"""

import dataclasses
import hashlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import workers
from rnn_jax.data.store import arrays
from rnn_jax.data.store import folder as folder_lib
from rnn_jax.data.store import sealed
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.system import activity

T = TypeVar('T')

FORMAT = 2  # of the files
PART = 16 * 2**20  # bytes of text that a worker reads at once
MAX_DOCUMENTS = 2**16  # documents in a part
WORTH_IT = 2**27  # bytes that are faster copied by several processes
UNKEYED = {'data_dir', 'layout'}  # no part of what a document is

Splits = dict[str, documents_lib.Documents]


class Reader:
  """The documents_lib.Reader of a split; a unit is a document of it."""

  def __init__(self, folder: sealed.Folder, split: str) -> None:
    own = folder.about['splits'][split]

    def array(name, dtype):
      return arrays.Array(folder.files[f'{split}.{name}'], dtype)

    self.folder = folder
    self.split = split
    self.files: tuple[str, ...] = tuple(folder.about['files'])
    self.text = folder.files[f'{split}.text']
    self.ends = array('ends', np.int64)
    self.labels: Any = own['labels'] and array('labels', own['labels'])
    self.difficulties: Any = own['difficulties'] and array(
      'difficulties', np.float64
    )
    self.names: Sequence[str] = arrays.Names(
      folder.files[f'{split}.names'], array('name_ends', np.int64)
    )

  @property
  def sizes(self) -> np.ndarray:
    """Bytes of each document."""
    return np.diff(np.asarray(self.ends), prepend=0)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    """Returns a range of the bytes of a document."""
    first, last = arrays.span(self.ends, unit)
    return self.text.read(first + start, min(first + stop, last))


class Stored(documents_lib.Documents):
  """The documents of a split in files; their index stays there, too."""

  reader: Reader

  def __init__(self, reader: Reader, tokens: Any = None) -> None:
    nothing = np.zeros(0, np.int64)
    super().__init__(reader, nothing, nothing, nothing, tokens)

  def __len__(self) -> int:
    return len(self.reader.ends)

  @property
  def labels(self) -> Any:
    return self.reader.labels

  @property
  def difficulties(self) -> Any:
    return self.reader.difficulties

  @property
  def names(self) -> tuple[str, ...]:
    return tuple(self.reader.names)

  @property
  def sizes(self) -> np.ndarray:
    return self.reader.sizes

  @property
  def total_bytes(self) -> int:
    return int(self.reader.ends[-1]) if len(self) else 0

  def name(self, n: int) -> str:
    return self.reader.names[n]

  def span(self, n: int) -> tuple[int, int]:
    """Returns where document `n` begins and ends in the split's text."""
    return arrays.span(self.reader.ends, n)

  def sizes_of(self, start: int, stop: int) -> np.ndarray:
    ends = self.reader.ends[max(start - 1, 0) : stop]
    if not start:
      ends = np.concatenate([[0], ends])
    return ends[1:] - ends[:-1]

  def read(self, n: int, start: int = 0, stop: int | None = None) -> bytes:
    first, last = self.span(n)
    end = last if stop is None else min(first + stop, last)
    return self.reader.text.read(first + start, end)

  def remember(self, what: str, make: Callable[[], T]) -> T:
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    name = f'{self.reader.split}.fact-{digest}.json'
    return sealed.remember(self.reader.folder.path / name, what, make)

  def with_tokens(self, tokens: Any) -> 'Stored':
    """Returns the same documents with their ids."""
    return Stored(self.reader, tokens)

  def select(self, chosen: np.ndarray) -> documents_lib.Documents:
    units = np.arange(len(self))[chosen]
    sizes = self.reader.sizes[units]
    return documents_lib.Documents(
      self.reader, units, np.zeros_like(units), sizes
    )


def load(
  data: config_lib.Data, source: Any
) -> dict[str, documents_lib.Documents]:
  """Returns the documents of each split, from files if `data.cache` says so.

  Args:
    data: section `data` of the config.
    source: module of the source; its `raw_files`, if it has one, returns
      {what they are for: the files that its documents are in}.

  Raises:
    InputError: as `load` of the source; or data.cache can't be made.
  """
  has_files = hasattr(source, 'raw_files') and not data.holds_images
  given = source.raw_files(data) if has_files else {}
  where = given and folder_lib.root(data, folder_lib.total_bytes(given))
  if not where:
    return source.load(data)
  options = _options(data, source.Config) | {'format': FORMAT}
  name = folder_lib.digest(given, options)
  kept = folder_lib.keep(
    where, name, lambda new: _build(new, source.load(data))
  )
  if kept is None:
    return source.load(data)
  return {split: Stored(Reader(kept, split)) for split in documents_lib.SPLITS}


def _options(data, config):
  """Returns the options that documents depend on, without paths."""
  own = {field.name for field in dataclasses.fields(config)}
  common = {field.name for field in dataclasses.fields(config_lib.Data)}
  names = own - common | {'source', 'classes', 'splits', 'split_by'}
  names |= {'difficulty'}
  names = {n for n in names if n != 'path' and not n.endswith('_path')}
  return {
    name: dataclasses.asdict(value)
    if dataclasses.is_dataclass(value := getattr(data, name))
    else value
    for name in sorted(names - UNKEYED)
  }


@dataclasses.dataclass(frozen=True)
class _Part:
  """Documents whose text a worker copies: all, or some bytes of one."""

  documents: documents_lib.Documents
  path: str
  at: int  # where in the file
  start: int = 0
  stop: int | None = None

  def size(self):
    if self.stop is None:
      return self.documents.total_bytes
    return self.stop - self.start


def _build(folder, splits):
  return {
    'splits': {n: _write(folder, n, splits[n]) for n in documents_lib.SPLITS},
    'files': [*splits['train'].reader.files],
  }


def _write(folder, split, documents):
  """Writes the files of a split, and returns its part of the index."""
  text = folder / f'{split}.text'
  with text.open('wb') as file:
    file.truncate(documents.total_bytes)
  np.cumsum(documents.sizes, dtype=np.int64).tofile(folder / f'{split}.ends')
  labels, difficulties = documents.labels, documents.difficulties
  dtype = None
  if labels is not None:
    labels = np.asarray(labels)
    least = int(min(labels.min(initial=0), 0))
    dtype = np.result_type(
      np.min_scalar_type(least), np.min_scalar_type(labels.max(initial=0))
    ).name
    labels.astype(dtype).tofile(folder / f'{split}.labels')
  if difficulties is not None:
    numbers = np.asarray(difficulties, np.float64)
    numbers.tofile(folder / f'{split}.difficulties')
  total = documents.total_bytes
  parts = map(_detached, _parts(documents, str(text)))
  with (
    (folder / f'{split}.names').open('wb') as names,
    (folder / f'{split}.name_ends').open('wb') as name_ends,
    activity.doing(f'reading the data ({split})', total, 'bytes') as done,
  ):
    at, ends = 0, arrays.Writer(name_ends, np.int64)
    copied = workers.by_all_cpus(_copy, parts, total >= WORTH_IT)
    for size, content, sizes in copied:
      names.write(content)
      ends.append(at + np.cumsum(sizes))
      at += len(content)
      done(size)
  return {
    'labels': dtype,
    'difficulties': difficulties is not None,
  }


def _parts(documents, path):
  """Yields the parts of a split, in turn."""
  for first, last, at in ranges(documents):
    chosen = documents.select(np.arange(first, last))
    size = chosen.total_bytes
    if last - first > 1 or size <= PART:
      yield _Part(chosen, path, at)
      continue
    for start in range(0, size, PART):
      yield _Part(chosen, path, at + start, start, min(start + PART, size))


def ranges(
  documents: documents_lib.Documents, size: int | None = None
) -> Iterator[tuple[int, int, int]]:
  """Yields (first document, the one after the last, bytes before them).

  Each range has up to `size` bytes (by default PART) and MAX_DOCUMENTS
  documents, or one document of more.
  """
  size = size or PART
  at = 0
  for begin in range(0, len(documents), MAX_DOCUMENTS):
    sizes = documents.sizes_of(
      begin, min(begin + MAX_DOCUMENTS, len(documents))
    )
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
      before = int(ends[first - 1]) if first else 0
      last = int(np.searchsorted(ends, before + size, side='right'))
      last = max(last, first + 1)
      yield begin + first, begin + last, at + before
      first = last
    at += int(ends[-1])


def _detached(part):
  return dataclasses.replace(part, documents=part.documents.detached())


def _copy(part):
  """Writes the text of a part; returns its size, names, bytes of each name."""
  documents = part.documents
  if part.stop is None:
    texts = [documents.read(n) for n in range(len(documents))]
    names = [documents.name(n) for n in range(len(documents))]
  else:
    texts = [documents.read(0, part.start, part.stop)]
    names = [documents.name(0)] if not part.start else []
  content = b''.join(texts)
  if len(content) != part.size():
    raise errors.InputError(
      f'{documents.name(0)}: this file changed while it was read: start again'
    )
  with open(part.path, 'r+b') as file:
    file.seek(part.at)
    file.write(content)
  encoded = [name.encode(errors='surrogateescape') for name in names]
  sizes = np.array([*map(len, encoded)], np.int64)
  return len(content), b''.join(encoded), sizes
