"""A window is the part of a document that becomes one example.

A long document has a window of `size` bytes every `stride` bytes; cuts move
forward to where a character begins (for word-like tokens, a word). Each epoch
of training starts at another offset, so that windows differ. With stride = size
it predicts every byte exactly once; with a smaller one windows overlap, and it
predicts a byte about size / stride times.
A window is an int32 array: the token before it, then its tokens. The boundary
token begins and ends a document.
"""

import functools

import numpy as np

from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import encoded
from rnn_jax.data.text import tokenizer as tokenizer_lib

REACH = 64  # bytes that a cut may move, and that are read for the token before
SPACES = tokenizer_lib.SPACES
BLOCK = 64  # documents whose windows are counted together
AT_ONCE = 1024 * BLOCK  # documents whose sizes are in memory at a time


class Windows:
  """Makes windows. Their number is the same in each epoch; some are empty."""

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    size: int,
    seed: int | None = None,
    stride: int = 0,
  ) -> None:
    """Cuts windows.

    Args:
      documents: of the split.
      tokenizer: of the run.
      size: bytes of a window.
      seed: of the cuts; without one every epoch is the same.
      stride: bytes from one window to the next, up to `size`; 0: `size`.
    """
    self._documents = documents
    self._tokenizer = tokenizer
    self._encoded = encoded.Encoded(documents, tokenizer)
    self._size = size
    self._stride = stride or size
    self._seed = seed
    # Windows of the documents before each block: few numbers of many documents.
    blocks = [np.zeros(1, np.int64)]
    for first in range(0, len(documents), AT_ONCE):
      counts = self._counts(self._sizes(first, AT_ONCE))
      blocks.append(np.add.reduceat(counts, np.arange(0, len(counts), BLOCK)))
    self._before = np.cumsum(np.concatenate(blocks))

  def __len__(self) -> int:
    return int(self._before[-1])

  def document(self, example: int) -> int:
    """Returns the number of the document that a window is from."""
    return self._place(example)[0]

  def size(self, example: int, epoch: int) -> int | None:
    """Returns how many ids a window has; None: they have to be made."""
    document, number, total = self._place(example)
    if total <= self._size:
      counts = self._encoded.counts(document)
      return None if counts is None else counts[0] + 2
    window = self._window(document, number, total, epoch)
    if window is None:
      return 0
    first, last, _, is_clean = window
    if not (is_clean or self._tokenizer.count(last - first)):
      return None
    count = self._encoded.count_between(document, first, last)
    return None if count is None else count + (not first) + (last == total)

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of a window; fewer than two if it is empty."""
    document, number, total = self._place(example)
    boundary = self._tokenizer.boundary
    if total <= self._size:
      ids = self._encoded.whole(document)
      return np.concatenate([[boundary], ids, [boundary]]).astype(np.int32)
    window = self._window(document, number, total, epoch)
    if window is None:
      return np.zeros(0, np.int32)
    first, last, before, is_clean = window
    known = self._encoded.between(document, first, last) if is_clean else None
    if known is None:
      text = self._documents.read(document, first, last)
      encoded_here = self._tokenizer.encode_document(text)
      known = np.concatenate([self._encode_before(before), encoded_here])
    # A document begins and ends with the boundary.
    begin = [] if first else [boundary]
    end = [boundary] if last == total else []
    return np.concatenate([begin, known, end]).astype(np.int32)

  def _sizes(self, first, most=BLOCK):
    """Returns the bytes of each of up to `most` documents."""
    last = min(first + most, len(self._documents))
    return self._documents.sizes_of(first, last)

  def _counts(self, sizes):
    """Returns how many windows documents of these sizes have."""
    beyond = -(-(sizes - self._size) // self._stride)  # windows after the first
    return np.where(sizes > self._size, beyond + 2, 1)

  def _place(self, example):
    """Returns (document, number of the window in it, the document's bytes)."""
    block = int(np.searchsorted(self._before, example, side='right')) - 1
    number = example - int(self._before[block])
    first = block * BLOCK
    sizes = self._sizes(first)
    ends = np.cumsum(self._counts(sizes))
    n = int(np.searchsorted(ends, number, side='right'))
    before = int(ends[n - 1]) if n else 0
    return first + n, number - before, int(sizes[n])

  def _window(self, document, number, total, epoch):
    """Returns a window of a document that is cut; None: it is empty.

    That is its first byte, the one after its last, text before it, and whether
    both cuts are clean, as `_edge` says.
    """
    start, stop = self._range(document, number, total, epoch)
    if start >= stop:
      return None
    first, before, begins = self._edge(document, start, total)
    last, _, ends = self._edge(document, stop, total)
    return None if first == last else (first, last, before, begins and ends)

  def _range(self, document, number, total, epoch):
    """Returns the byte range of a window, before its ends are moved."""
    offset = 0
    if self._seed is not None:
      offset = _offset(self._seed, epoch, document, self._stride)
    start = offset + (number - 1) * self._stride
    return max(start, 0), min(start + self._size, total)

  def _edge(self, document, at, total):
    """Returns where a cut is moved to, the text before it, and if it is clean.

    A clean cut changes no token, nor does the one that the text begins at.
    """
    if not 0 < at < total:
      return at, b'', True
    origin = max(at - REACH, 0)
    text = self._documents.read(document, origin, at + REACH)
    place = self._cut(text, at - origin)
    begin = self._first_word(text[:place], origin)
    is_cut = self._tokenizer.is_cut
    is_clean = origin + place == total or is_cut(text, place)
    if origin:
      is_clean = is_clean and 0 < begin < place and is_cut(text, begin)
    return origin + place, text[begin:place], is_clean

  def _cut(self, text, at):
    """Moves a cut forward, never past a later cut moved in the same way."""
    near = text[at : at + REACH]
    if self._tokenizer.whole_words:
      before = text[at - 1]
      for offset, byte in enumerate(near):
        if byte in SPACES and before not in SPACES:
          return at + offset
        before = byte
    return at + documents_lib.skip_to_character(near)

  def _first_word(self, text, origin):
    """Returns where the text before a window begins that is encoded."""
    begin = 0
    if text and origin:
      begin = documents_lib.skip_to_character(text)
      if self._tokenizer.whole_words:
        word = self._cut(text, 1)
        begin = word if word < len(text) else begin
    return begin

  def _encode_before(self, text):
    """Returns the id before a window, given the text there; none: no text."""
    if not text:
      return []
    ids = self._tokenizer.encode_document(text)
    return ids[-1:] if len(ids) else [self._tokenizer.boundary]


@functools.lru_cache(maxsize=2**16)  # a generator takes 50 microseconds
def _offset(seed, epoch, document, stride):
  """Returns where the first cut of a document is in an epoch."""
  return int(np.random.default_rng((seed, epoch, document)).integers(stride))
