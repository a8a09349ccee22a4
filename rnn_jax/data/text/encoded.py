"""The ids of documents, from token files or as they are encoded.

Whatever makes examples of text asks here for the ids of a document: they are
read from files where the corpus has some (rnn_jax/data/store). Those of a small
corpus stay in memory once they are made, if making them takes long.
"""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np

from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib

KEPT = 2**23  # bytes of text whose ids stay in memory

EncodeParts = Callable[
  [tokenizer_lib.Tokenizer, Sequence[bytes]], Sequence[Sequence[np.ndarray]]
]


class Encoded:
  """The ids of the documents of a split: int32 arrays, not to be changed.

  Args:
    documents: of the split.
    tokenizer: of the ids.
    encode_parts: returns the ids of the parts of each of some documents; None:
      a document is encoded as a whole.
  """

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    encode_parts: EncodeParts | None = None,
  ) -> None:
    self._documents = documents
    self._tokenizer = tokenizer
    self._encode_parts = encode_parts
    self._tokens = documents.tokens
    self._kept: dict[int, Sequence[np.ndarray]] | None = None
    if tokenizer.keeps_ids and documents.total_bytes <= KEPT:
      self._kept = {}

  def whole(self, n: int) -> np.ndarray:
    """Returns the ids of document `n`."""
    return self.parts(n)[0]

  def parts(self, n: int) -> Sequence[np.ndarray]:
    """Returns the ids of each part of document `n`."""
    if self._tokens is not None:
      return self._tokens.parts(n)
    if self._kept is None:
      return self._encode(n)
    if n not in self._kept:
      self._kept[n] = self._encode(n)
    return self._kept[n]

  def counts(self, n: int) -> list[int] | None:
    """Returns the number of ids of each part, if that needs no encoding."""
    if self._tokens is not None:
      return self._tokens.counts(n)
    size = int(self._documents.sizes_of(n, n + 1)[0])
    count = self._tokenizer.count(size)
    return None if count is None or self._encode_parts else [count]

  def count_between(self, n: int, start: int, stop: int) -> int | None:
    """Returns the number of ids that `between` has; None: it isn't known.

    Without token files that of the ids of the range, and the one before it.
    """
    if self._tokens is not None:
      return self._tokens.count_between(n, start, stop)
    count = self._tokenizer.count(stop - start)
    return None if count is None else count + (start > 0)

  def between(self, n: int, start: int, stop: int) -> np.ndarray | None:
    """Returns ids of a range of document `n`, and before them the one there.

    Args:
      n: a document that is encoded as a whole.
      start: the first byte: the document's, with no id before it, or one where
        encoding the two sides gives the ids of both together.
      stop: the byte after the last: the same, or the document ends.

    Returns:
      None if they have to be encoded.
    """
    if self._tokens is None:
      return None
    return self._tokens.between(n, start, stop)

  def _encode(self, n):
    text = self._documents.read(n)
    if self._encode_parts is None:
      return [self._tokenizer.encode_document(text)]
    return self._encode_parts(self._tokenizer, [text])[0]
