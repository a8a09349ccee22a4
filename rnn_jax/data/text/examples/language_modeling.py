"""Language modeling: a whole document, from boundary to boundary."""

from collections.abc import Mapping

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base


class Whole:
  """The examples; of a long one only what is asked for is read."""

  unfit = 0

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    del options
    self._tokens = tokens_lib.of(documents, tokenizer)
    self._boundary = tokenizer.boundary
    self.lengths = self._tokens.sizes + 2

  def read(
    self, n: int, start: int = 0, stop: int | None = None, epoch: int = 0
  ) -> np.ndarray:
    """Returns ids `start` to `stop` of example `n`."""
    del epoch
    length = int(self.lengths[n])
    stop = length if stop is None else min(stop, length)
    ids = np.full(max(stop - start, 0), self._boundary, np.int32)
    first, last = max(start, 1), min(stop, length - 1)
    if first < last:
      within = self._tokens.read(n, first - 1, last - 1)
      ids[first - start : last - start] = within
    return ids


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Accepts any document."""
