"""A piece is the part of one document that becomes one example.

A long document is cut every `size` bytes, moved to where a character (or for
word-like tokens a word) begins. Each epoch of training begins at another
phase, so that windows fall elsewhere, while every byte is still predicted
exactly once an epoch. A piece is an int32 array: the token in front of it,
then its tokens; the boundary token stands in front of a document and behind
it. So `ids[:-1]` is what a model reads and `ids[1:]` what it predicts.
"""

import numpy as np

from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib

REACH = 64  # bytes: how far a cut may move, and what is read for the last token
SPACES = b' \n\t\r'


class Pieces:
  """Makes pieces. Their number is the same in each epoch; some are empty."""

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    size: int,
    seed: int | None = None,
  ):
    """Cuts pieces of `size` bytes; without a seed every epoch is the same."""
    self._documents = documents
    self._tokenizer = tokenizer
    self._size = size
    self._seed = seed
    sizes = documents.sizes
    counts = np.where(sizes > size, -(-sizes // size) + 1, 1)
    self._ends = np.cumsum(counts)

  def __len__(self):
    return int(self._ends[-1]) if len(self._ends) else 0

  def document(self, piece: int) -> int:
    """Returns the number of the document that a piece is of."""
    return int(np.searchsorted(self._ends, piece, side='right'))

  def make(self, piece: int, epoch: int) -> np.ndarray:
    """Returns the ids of a piece; fewer than two if there is none."""
    document = self.document(piece)
    start, stop = self._range(document, piece, epoch)
    if start >= stop:
      return np.zeros(0, np.int32)
    total = int(self._documents.sizes[document])
    origin = max(start - REACH, 0)
    text = self._documents.read(document, origin, stop + REACH)
    first = self._cut(text, start - origin) if start else 0
    last = self._cut(text, stop - origin) if stop < total else len(text)
    if first == last:
      return np.zeros(0, np.int32)
    ids = self._tokenizer.encode_document(text[first:last])
    end = [self._tokenizer.boundary] * (origin + last == total)
    return np.concatenate(
      [[self._before(text[:first], origin)], ids, end]
    ).astype(np.int32)

  def _range(self, document, piece, epoch):
    """Returns the byte range of a piece, before its ends are moved."""
    total = int(self._documents.sizes[document])
    if total <= self._size:
      return 0, total
    first = self._ends[document - 1] if document else 0
    phase = 0
    if self._seed is not None:
      rng = np.random.default_rng((self._seed, epoch, document))
      phase = int(rng.integers(self._size))
    stop = phase + int(piece - first) * self._size
    return max(stop - self._size, 0), min(stop, total)

  def _cut(self, text, at):
    """Moves a cut forward: never past a later cut that is moved alike."""
    near = text[at : at + REACH]
    if self._tokenizer.whole_words:
      before = text[at - 1]
      for offset, byte in enumerate(near):
        if byte in SPACES and before not in SPACES:
          return at + offset
        before = byte
    return at + documents_lib.skip_to_character(near)

  def _before(self, text, origin):
    """Returns the token in front of a piece, given the text there."""
    begin = 0
    if text and origin:
      begin = documents_lib.skip_to_character(text)
      if self._tokenizer.whole_words:
        word = self._cut(text, 1)
        begin = word if word < len(text) else begin
    ids = self._tokenizer.encode_document(text[begin:])
    return ids[-1] if len(ids) else self._tokenizer.boundary
