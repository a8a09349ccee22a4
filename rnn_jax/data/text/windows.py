"""A window is the part of a document that becomes one example.

A long document has a window of `size` bytes every `stride` bytes; cuts move
forward to where a character begins (for word-like tokens, a word). Each epoch
of training starts at another offset, so that windows differ. With stride = size
it predicts every byte exactly once; with a smaller one windows overlap, and it
predicts a byte about size / stride times.
A window is an int32 array: the token before it, then its tokens. The boundary
token begins and ends a document.
"""

import numpy as np

from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib

REACH = 64  # bytes that a cut may move, and that are read for the token before
SPACES = b' \n\t\r'


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
    self._size = size
    self._stride = stride or size
    self._seed = seed
    sizes = documents.sizes
    beyond = -(-(sizes - size) // self._stride)  # windows after the first
    counts = np.where(sizes > size, beyond + 2, 1)
    self._ends = np.cumsum(counts)

  def __len__(self) -> int:
    return int(self._ends[-1]) if len(self._ends) else 0

  def document(self, example: int) -> int:
    """Returns the number of the document that a window is from."""
    return int(np.searchsorted(self._ends, example, side='right'))

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of a window; fewer than two if it is empty."""
    document = self.document(example)
    start, stop = self._range(document, example, epoch)
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

  def _range(self, document, window, epoch):
    """Returns the byte range of a window, before its ends are moved."""
    total = int(self._documents.sizes[document])
    if total <= self._size:
      return 0, total
    first = self._ends[document - 1] if document else 0
    offset = 0
    if self._seed is not None:
      rng = np.random.default_rng((self._seed, epoch, document))
      offset = int(rng.integers(self._stride))
    start = offset + int(window - first - 1) * self._stride
    return max(start, 0), min(start + self._size, total)

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

  def _before(self, text, origin):
    """Returns the token before a window, given the text there."""
    begin = 0
    if text and origin:
      begin = documents_lib.skip_to_character(text)
      if self._tokenizer.whole_words:
        word = self._cut(text, 1)
        begin = word if word < len(text) else begin
    ids = self._tokenizer.encode_document(text[begin:])
    return ids[-1] if len(ids) else self._tokenizer.boundary
