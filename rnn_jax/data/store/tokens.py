"""The ids of a split's documents, one after the other: a column.

    ids     of all documents, in turn, in the fewest bits
    ends    where those of each document end; of each part, if documents are
            encoded in parts, such as a dialogue's turns
    parts   then: where the parts of each document end

Where the documents are in files (see the package), the columns are, too, as
`train.ids`, `train.ends` and `train.parts`; those of other documents are in
memory. The ids of bytes are the bytes, so the text itself is their column.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax.data import workers
from rnn_jax.data.store import arrays
from rnn_jax.data.store import folder as folder_lib
from rnn_jax.data.store import sealed
from rnn_jax.data.store import texts
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.system import activity

FORMAT = 3  # of the files
PART = 4 * 2**20  # bytes of text that a worker encodes at once
WORTH_IT = 4 * PART  # bytes that are faster encoded by several processes
NEAR = 4096  # bytes that are read to find where a cut changes no token
SPEC = 'tokenizer.json'
NOTHING = np.zeros(0, np.int64)

EncodeParts = Callable[
  [tokenizer_lib.Tokenizer, Sequence[bytes]], Sequence[Sequence[np.ndarray]]
]
Column = np.ndarray | arrays.Array


class Tokens:
  """The ids of the documents of a split.

  Args:
    ids: of all documents, in turn.
    ends: of each part in them, or of each document.
    parts: where each document's parts end in `ends`; None: it is one part.
    folder: that they are in, if they are in files.
  """

  def __init__(
    self,
    ids: Column,
    ends: Column,
    parts: Column | None = None,
    folder: sealed.Folder | None = None,
  ) -> None:
    self._ids, self._ends, self._parts = ids, ends, parts
    self.folder = folder

  def __len__(self) -> int:
    return len(self._ends if self._parts is None else self._parts)

  def __getstate__(self) -> dict[str, Any]:
    made = {'part_sizes', 'part_ends', 'sizes'}
    return {k: x for k, x in self.__dict__.items() if k not in made}

  @functools.cached_property
  def part_sizes(self) -> np.ndarray:
    """The number of ids of each part of all documents, in turn."""
    return np.diff(np.asarray(self._ends), prepend=0)

  @functools.cached_property
  def part_ends(self) -> np.ndarray:
    """Where the parts of each document end among all of them."""
    if self._parts is None:
      return np.arange(1, len(self) + 1)
    return np.asarray(self._parts)

  @functools.cached_property
  def sizes(self) -> np.ndarray:
    """The number of ids of each document."""
    before = np.concatenate([[0], np.cumsum(self.part_sizes)])
    return np.diff(before[self.part_ends], prepend=0)

  def parts(self, n: int) -> list[np.ndarray]:
    """Returns the ids of each part of document `n`, int32."""
    first, last = (
      (n, n + 1) if self._parts is None else arrays.span(self._parts, n)
    )
    before = max(first - 1, 0)
    ends = self._ends[before:last]
    start, ends = (int(ends[0]), ends[1:]) if first else (0, ends)
    if not len(ends):
      return []
    return np.split(self._read(start, int(ends[-1])), ends[:-1] - start)

  def read(self, n: int, start: int, stop: int) -> np.ndarray:
    """Returns ids `start` to `stop` of document `n`, which is one part."""
    first, last = arrays.span(self._ends, n)
    return self._read(first + start, min(first + stop, last))

  def _read(self, start, stop):
    return self._ids[start:stop].astype(np.int32)


def of(
  documents: documents_lib.Documents,
  tokenizer: tokenizer_lib.Tokenizer,
  encode_parts: EncodeParts | None = None,
) -> Tokens:
  """Returns the ids that documents come with, or encodes them into memory.

  Args:
    documents: of a split.
    tokenizer: of the ids.
    encode_parts: returns the ids of the parts of each of some documents, a
      function of a module; None: a document is one part.
  """
  if documents.tokens is not None:
    return documents.tokens
  if tokenizer.ids_are_bytes and encode_parts is None:
    text = b''.join(map(documents.read, range(len(documents))))
    return Tokens(np.frombuffer(text, np.uint8), np.cumsum(documents.sizes))
  dtypes = _dtypes(tokenizer)
  files = {name: io.BytesIO() for name in dtypes}
  parts = _parts(documents, tokenizer, encode_parts)
  encoded = (_encode(part, tokenizer) for part in parts)
  _write(files, dtypes, encoded, documents.total_bytes)
  ids, ends, of_parts = (
    np.frombuffer(file.getbuffer(), dtypes[name])
    for name, file in files.items()
  )
  return Tokens(ids, ends, None if encode_parts is None else of_parts)


def load(
  documents: Mapping[str, documents_lib.Documents],
  tokenizer: tokenizer_lib.Tokenizer,
  encode_parts: EncodeParts | None,
) -> dict[str, documents_lib.Documents]:
  """Returns documents with their ids, which files keep if they keep the text.

  Args:
    documents: of each split.
    tokenizer: of the ids.
    encode_parts: as in `of`.
  """
  kept = None
  stored = {n: x for n, x in documents.items() if isinstance(x, texts.Stored)}
  if stored and tokenizer.ids_are_bytes and encode_parts is None:
    return {
      split: each.with_tokens(
        Tokens(arrays.Array(each.reader.text, np.uint8), each.reader.ends)
      )
      for split, each in stored.items()
    }
  if stored:
    parts = (
      encode_parts and f'{encode_parts.__module__}.{encode_parts.__name__}'
    )
    where = stored['train'].reader.folder.path
    key = f'{FORMAT} {where.name} {tokenizer.digest()} {parts}'
    name = f'ids-{hashlib.sha256(key.encode()).hexdigest()[:32]}'
    kept = folder_lib.keep(
      where, name, lambda new: _build(new, stored, tokenizer, encode_parts)
    )
  if kept is not None:
    return {
      split: each.with_tokens(_opened(kept, split))
      for split, each in stored.items()
    }
  return {
    split: each.with_tokens(of(each, tokenizer, encode_parts))
    for split, each in documents.items()
  }


def verify(documents: Mapping[str, documents_lib.Documents]) -> None:
  """Checks all token files of documents; says how many bytes they have.

  Raises:
    DamagedError: they aren't what was written.
  """
  folders = {}
  for each in documents.values():
    if isinstance(each, texts.Stored):
      folders[each.reader.folder.path] = each.reader.folder
    if each.tokens is not None and each.tokens.folder is not None:
      folders[each.tokens.folder.path] = each.tokens.folder
  with activity.doing('checking the token files'):
    total = sum(folder.verify() for folder in folders.values())
  print(
    f'--verify: {total:,} bytes of token files are as they were written'
    if folders
    else '--verify: these data have no token files (data.cache)',
    file=sys.stderr,  # stdout may be JSON
    flush=True,
  )


@dataclasses.dataclass(frozen=True)
class _Part:
  """Documents, or a range of the bytes of one, that are encoded at once."""

  documents: documents_lib.Documents
  first: int
  last: int
  start: int  # in the only document
  stop: int | None  # None: they are whole
  encode_parts: EncodeParts | None

  def ends(self):
    """Whether the last document ends here."""
    return self.stop is None or self.stop == int(
      self.documents.sizes_of(self.first, self.last)[0]
    )


@dataclasses.dataclass(frozen=True)
class _Encoded:
  """The ids of a _Part; places count from its begin."""

  size: int  # bytes
  ids: np.ndarray
  ends: np.ndarray  # of the parts of documents that end here
  parts: np.ndarray


def _dtypes(tokenizer):
  """Returns {name of a column: the type of its elements}."""
  ids = np.min_scalar_type(max(tokenizer.size - 1, 0))
  return {'ids': ids, 'ends': np.dtype(np.int64), 'parts': np.dtype(np.int64)}


def _opened(folder, split):
  def array(name, dtype):
    return arrays.Array(folder.files[f'{split}.{name}'], dtype)

  return Tokens(
    array('ids', folder.about['dtype']),
    array('ends', np.int64),
    array('parts', np.int64) if folder.about['in_parts'] else None,
    folder,
  )


def _build(folder, documents, tokenizer, encode_parts):
  spec = folder / SPEC
  tokenizer.save(spec)
  dtypes = _dtypes(tokenizer)
  encode = functools.partial(_encode_by_spec, str(spec))
  for split, each in documents.items():
    parts = _parts(each, tokenizer, encode_parts)
    worth_it = each.total_bytes >= WORTH_IT
    encoded = workers.by_all_cpus(encode, parts, worth_it)
    with contextlib.ExitStack() as stack:
      files = {
        name: stack.enter_context((folder / f'{split}.{name}').open('wb'))
        for name in dtypes
      }
      _write(files, dtypes, encoded, each.total_bytes)
  return {'in_parts': encode_parts is not None, 'dtype': dtypes['ids'].name}


def _write(files, dtypes, encoded, total):
  """Writes the columns of a split."""
  out = {name: arrays.Writer(files[name], x) for name, x in dtypes.items()}
  with activity.doing('tokenizing', total, 'bytes') as done:
    for each in encoded:
      out['parts'].append(out['ends'].count + each.parts)
      out['ends'].append(out['ids'].count + each.ends)
      out['ids'].append(each.ids)
      done(each.size)


def _parts(documents, tokenizer, encode_parts) -> Iterator[_Part]:
  """Yields the parts of a split, in turn."""
  for first, last, _ in texts.ranges(documents, PART):
    size = int(documents.sizes_of(first, last).sum())
    if encode_parts is not None or last - first > 1 or size <= PART:
      yield _Part(documents, first, last, 0, None, encode_parts)
      continue
    cuts = [0]
    for at in range(PART, size, PART):
      cut = _next_cut(documents, first, tokenizer, at, size)
      if cut > cuts[-1]:
        cuts.append(cut)
    for begin, end in zip(cuts, [*cuts[1:], size], strict=True):
      if begin < end:
        yield _Part(documents, first, last, begin, end, None)


def _next_cut(documents, n, tokenizer, at, size):
  """Returns the first place from `at` on where a cut changes no token."""
  while at < size:
    begin = max(at - NEAR, 0)
    text = documents.read(n, begin, min(at + NEAR, size))
    for place in range(at - begin, len(text)):
      if tokenizer.is_cut(text, place):
        return begin + place
    at += NEAR
  return size


@functools.lru_cache(maxsize=2)
def _tokenizer(spec):
  return tokenizer_lib.load(spec)


def _encode_by_spec(spec, part):
  return _encode(part, _tokenizer(spec))


def _encode(part, tokenizer):
  """Returns the _Encoded of a _Part."""
  listed = [
    part.documents.read(n, part.start, part.stop)
    for n in range(part.first, part.last)
  ]
  size = sum(map(len, listed))
  if part.encode_parts is not None:
    parts = part.encode_parts(tokenizer, listed)
    ids = [each for document in parts for each in document]
    ends = np.cumsum(np.array([*map(len, ids)], np.int64))
    counts = np.array([*map(len, parts)], np.int64)
    return _Encoded(size, _joined(ids), ends, np.cumsum(counts))
  ids = tokenizer.encode_documents(listed)
  ends = np.cumsum([*map(len, ids)], dtype=np.int64) if part.ends() else NOTHING
  return _Encoded(size, _joined(ids), ends, np.arange(1, len(ends) + 1))


def _joined(ids):
  return np.concatenate([np.zeros(0, np.int32), *ids])
