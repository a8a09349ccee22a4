"""The ids of a corpus in one file for each split, see the package.

    train.ids      of all documents, in turn, in the fewest bits
    train.ends     where those of each document end, int64; of each part, if
                   documents are encoded in parts, such as a dialogue's turns
    train.parts    then: where the parts of each document end, int64
    train.marks    for every STEP bytes of the text, the first token that begins
                   there or later, int64
    train.ahead    how many bytes later, uint16

A tokenizer whose ids don't determine the bytes of the text has no marks.
"""

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax.data.store import arrays
from rnn_jax.data.store import folder as folder_lib
from rnn_jax.data.store import sealed
from rnn_jax.data.store import texts
from rnn_jax.data.store import workers
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import encoded as encoded_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.system import activity

FORMAT = 2  # of the files
PART = 4 * 2**20  # bytes of text that a worker encodes at once
WORTH_IT = 4 * PART  # bytes that are faster encoded by several processes
PIECE = 2**14  # bytes that are encoded at once, where a cut changes nothing
NEAR = 4096  # bytes that are read to find such a cut
STEP = 1024  # bytes of text from mark to mark
SPEC = 'tokenizer.json'


class Tokens:
  """The ids of the documents of a split."""

  def __init__(
    self, folder: sealed.Folder, split: str, text_ends: arrays.Array
  ) -> None:
    index = folder.about
    self.folder = folder
    self._text_ends = text_ends

    def array(name, dtype):
      return arrays.Array(folder.files[f'{split}.{name}'], dtype)

    self._in_parts: bool = index['in_parts']
    self._ids = array('ids', index['dtype'])
    self._ends = array('ends', np.int64)
    self._parts = array('parts', np.int64)
    self._marks: arrays.Array | None = None
    if index['has_marks']:
      self._marks = array('marks', np.int64)
      self._ahead = array('ahead', np.uint16)
      self._lengths = np.array(index['lengths'])

  def parts(self, n: int) -> list[np.ndarray]:
    """Returns the ids of each part of document `n`."""
    start, ends = self._ends_of(n)
    if not len(ends):
      return []
    return np.split(self._read(start, int(ends[-1])), ends[:-1] - start)

  def counts(self, n: int) -> list[int]:
    """Returns the number of ids of each part of document `n`."""
    start, ends = self._ends_of(n)
    return np.diff(ends, prepend=start).tolist()

  def between(self, n: int, start: int, stop: int) -> np.ndarray | None:
    """Returns ids of a range of document `n`, and before them the one there.

    Args:
      n: the document.
      start: the first byte; before that of the document is no id.
      stop: the byte after the last.

    Returns:
      None if no token begins at one of them, or that isn't known.
    """
    span = self._span(n, start, stop)
    return None if span is None else self._read(*span)

  def count_between(self, n: int, start: int, stop: int) -> int | None:
    """Returns the number of ids that `between` returns, or None."""
    span = self._span(n, start, stop)
    return None if span is None else span[1] - span[0]

  def _ends_of(self, n):
    """Returns where the ids of a document begin, and where its parts end."""
    first, last = arrays.span(self._parts, n) if self._in_parts else (n, n + 1)
    before = max(first - 1, 0)
    ends = self._ends[before:last]
    return (int(ends[0]), ends[1:]) if first else (0, ends)

  def _span(self, n, start, stop):
    """Returns the range of ids of `between`, or None."""
    if self._marks is None:
      return None
    origin, _ = arrays.span(self._text_ends, n)
    first, last = self._at(origin + start), self._at(origin + stop)
    if first is None or last is None:
      return None
    return first - (start > 0), last

  def _at(self, byte):
    """Returns the token that begins at a byte of the text, or None."""
    mark = byte // STEP
    if mark == len(self._marks):
      return len(self._ids)  # the text ends here
    token = int(self._marks[mark])
    left = byte - mark * STEP - int(self._ahead[mark])
    if left <= 0:
      return None if left else token
    lengths = self._lengths[self._ids[token : token + left]]
    ends = np.cumsum(lengths)
    n = int(np.searchsorted(ends, left))
    return token + n + 1 if n < len(ends) and ends[n] == left else None

  def _read(self, start, stop):
    return self._ids[start:stop].astype(np.int32)


def load(
  documents: Mapping[str, documents_lib.Documents],
  tokenizer: tokenizer_lib.Tokenizer,
  encode_parts: encoded_lib.EncodeParts | None,
) -> dict[str, documents_lib.Documents]:
  """Returns documents whose ids are kept, if it is worth it.

  Args:
    documents: of each split.
    tokenizer: of the ids.
    encode_parts: returns the ids of the parts of each of some documents, a
      function of a module; None: a document is one part.
  """
  stored = {n: x for n, x in documents.items() if isinstance(x, texts.Stored)}
  if not tokenizer.keeps_ids or len(stored) < len(documents):
    return dict(documents)
  parts = encode_parts and f'{encode_parts.__module__}.{encode_parts.__name__}'
  where = stored['train'].reader.folder.path
  key = f'{FORMAT} {where.name} {tokenizer.digest()} {parts}'
  name = f'ids-{hashlib.sha256(key.encode()).hexdigest()[:32]}'
  kept = folder_lib.keep(
    where, name, lambda new: _build(new, stored, tokenizer, encode_parts)
  )
  if kept is None:
    return dict(documents)
  return {
    split: each.with_tokens(Tokens(kept, split, each.reader.ends))
    for split, each in stored.items()
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
    if isinstance(each.tokens, Tokens):
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
  """Documents, or a range of the bytes of one, that a worker encodes."""

  documents: texts.Stored
  first: int
  last: int
  start: int  # in the split's text
  stop: int
  spec: str  # the file of the tokenizer
  encode_parts: encoded_lib.EncodeParts | None


@dataclasses.dataclass(frozen=True)
class _Encoded:
  """What a worker returns; places count from the part's begin."""

  size: int
  ids: np.ndarray
  ends: np.ndarray  # of parts of documents; of a cut one, only at its end
  parts: np.ndarray
  marks: np.ndarray
  ahead: np.ndarray
  is_exact: bool  # the ids determine the bytes


def _build(folder, documents, tokenizer, encode_parts):
  spec = folder / SPEC
  tokenizer.save(spec)
  dtype = np.min_scalar_type(max(tokenizer.size - 2, 0))
  index: dict[str, Any] = {
    'in_parts': encode_parts is not None,
    'dtype': dtype.name,
  }
  exact = tokenizer.lossless and encode_parts is None
  with workers.Pool() as pool:
    for split, each in documents.items():
      parts = (
        _Part(*part, str(spec), encode_parts)
        for part in _parts(each, tokenizer, encode_parts is None)
      )
      encoded = pool.ordered(_encode, parts, each.total_bytes >= WORTH_IT)
      is_exact = _write(folder, split, dtype, encoded, each.total_bytes)
      exact = exact and is_exact
  index['has_marks'] = exact
  if exact:
    index['lengths'] = tokenizer.byte_lengths().tolist()
  return index


def _write(folder, split, dtype, encoded, total):
  """Writes the files of a split; returns whether marks are right."""
  names = {'ids': dtype, 'ends': np.int64, 'parts': np.int64}
  names |= {'marks': np.int64, 'ahead': np.uint16}
  out = {n: arrays.Writer(folder / f'{split}.{n}', t) for n, t in names.items()}
  exact = True
  with activity.doing(f'tokenizing ({split})', total, 'bytes') as done:
    for each in encoded:
      out['parts'].append(out['ends'].count + each.parts)
      out['ends'].append(out['ids'].count + each.ends)
      out['marks'].append(out['ids'].count + each.marks)
      out['ahead'].append(each.ahead)
      out['ids'].append(each.ids)
      exact = exact and each.is_exact
      done(each.size)
  for writer in out.values():
    writer.close()
  return exact


def _parts(documents, tokenizer, cuts_documents):
  """Yields (documents, first, last, start, stop) of each _Part."""
  for first, last, start in texts.ranges(documents, PART):
    stop = documents.span(last - 1)[1]
    cuts = [start, stop]
    if cuts_documents and last - first == 1:
      for at in range(start + PART, stop, PART):
        cut = _next_cut(documents, tokenizer, at, stop)
        if cut > cuts[-2]:
          cuts.insert(-1, cut)
    for begin, end in zip(cuts, cuts[1:], strict=False):
      if begin < end:
        yield documents, first, last, begin, end


def _next_cut(documents, tokenizer, at, stop):
  """Returns the first place from `at` on where a cut changes no token."""
  while at < stop:
    text = documents.reader.text.read(at - NEAR, min(at + NEAR, stop))
    for place in range(NEAR, len(text)):
      if tokenizer.is_cut(text, place):
        return at + place - NEAR
    at += NEAR
  return stop


@functools.lru_cache(maxsize=2)
def _tokenizer(spec):
  return tokenizer_lib.load(spec)


def _encode(part):
  """Returns the _Encoded of a _Part."""
  documents, tokenizer = part.documents, _tokenizer(part.spec)
  if part.encode_parts is not None:
    listed = part.encode_parts(
      tokenizer, [documents.read(n) for n in range(part.first, part.last)]
    )
    ids = [each for parts in listed for each in parts]
    counts = np.array([*map(len, listed)], np.int64)
    sizes = np.array([*map(len, ids)], np.int64)
    joined = np.concatenate([np.zeros(0, np.int32), *ids])
    nothing = np.zeros(0, np.int64)
    size = part.stop - part.start
    ends = np.cumsum(sizes)
    return _Encoded(
      size, joined, ends, np.cumsum(counts), nothing, nothing, False
    )
  text = documents.reader.text.read(part.start, part.stop)
  ends = documents.reader.ends[part.first : part.last] - part.start
  whole = ends[ends <= len(text)]  # those that end in this part
  pieces, of_document, begin = [], [], 0
  for n, end in enumerate([*whole.tolist(), len(text)]):
    for piece in _pieces(text[begin:end], tokenizer):
      pieces.append(piece)
      of_document.append(n)
    begin = end
  ids = tokenizer.encode_documents(pieces)
  sizes = np.array([*map(len, ids)], np.int64)
  counts = np.bincount(of_document, sizes, len(whole) + 1).astype(np.int64)
  joined = np.concatenate([np.zeros(0, np.int32), *ids])
  marks, ahead, exact = _marks(part, text, joined, tokenizer)
  return _Encoded(
    len(text),
    joined,
    np.cumsum(counts)[: len(whole)],
    np.arange(1, len(whole) + 1),
    marks,
    ahead,
    exact,
  )


def _pieces(text, tokenizer):
  """Cuts a text where it changes no token, about every PIECE bytes."""
  begin = 0
  while begin < len(text):
    end = begin + PIECE
    while end < len(text) and not tokenizer.is_cut(text, end):
      end += 1
    yield text[begin:end].decode()
    begin = end


def _marks(part, text, ids, tokenizer):
  """Returns the marks in a part, and whether ids determine the bytes."""
  nothing = np.zeros(0, np.int64)
  if not tokenizer.lossless:
    return nothing, nothing, False
  ends = np.cumsum(tokenizer.byte_lengths()[ids])
  if (int(ends[-1]) if len(ends) else 0) != len(text):
    return nothing, nothing, False
  starts = np.concatenate([[0], ends])
  if len(ends) and np.diff(starts).max() >= 2**16:
    return nothing, nothing, False
  first = -(-part.start // STEP) * STEP
  places = np.arange(first, part.stop, STEP) - part.start
  marks = np.searchsorted(starts, places)
  return marks, starts[marks] - places, True
