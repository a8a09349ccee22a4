"""How surprising a text is to a model: its score, and that of each token.

    log p(text) = sum_t log p(token_t | tokens_<t)        in nats
    loss = -log p(text) / tokens      bits per byte = -log2 p(text) / bytes

The sums are over the tokens that count, see inference/framing.py.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import framing

NAT = math.log2(math.e)  # bits
LARGEST = 700.0  # a loss whose perplexity is a float


class Values(NamedTuple):
  """What the model says of each of L tokens, NumPy or JAX arrays.

  Attributes:
    logprob_L: float32, of the token, in nats.
    rank_L: int32, 1 + the number of likelier tokens.
    entropy_L: float32, of the prediction, in nats.
    top_LxK: int32, the ids of the K most likely tokens, the most likely first.
    top_logprob_LxK: float32, theirs.
  """

  logprob_L: Any
  rank_L: Any
  entropy_L: Any
  top_LxK: Any
  top_logprob_LxK: Any


@dataclasses.dataclass(frozen=True)
class Alternative:
  """A token that might have come instead."""

  id: int
  text: str
  logprob: float


@dataclasses.dataclass(frozen=True)
class Token:
  """A predicted token.

  Attributes:
    id: its number in the vocabulary.
    text: as `readable` returns it; '' for the boundary.
    start: where it begins in the text, in bytes; None: unknown.
    stop: where it ends.
    logprob: its log-probability given the tokens before it, in nats.
    rank: 1 + the number of likelier tokens.
    entropy: of the prediction, in nats.
    counted: whether it counts in the score.
    top: the most likely tokens in its place, which may include it.
  """

  id: int
  text: str
  start: int | None
  stop: int | None
  logprob: float
  rank: int
  entropy: float
  counted: bool
  top: tuple[Alternative, ...]

  @property
  def bits(self) -> float:
    """Its surprise, -log2 p."""
    return -self.logprob * NAT


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
  """The score of a text.

  Attributes:
    framed: the text and its tokens.
    values: of the tokens, NumPy arrays.
    tokenizer: the model's.
  """

  framed: framing.Framed
  values: Values
  tokenizer: tokenizer_lib.Tokenizer

  @property
  def text(self) -> str:
    return self.framed.text.decode()

  @property
  def token_count(self) -> int:
    """The number of tokens that count."""
    return int(self.framed.counted_L.sum())

  @property
  def byte_count(self) -> int:
    return len(self.framed.text)

  @property
  def unknown_count(self) -> int:
    """The number of tokens outside the vocabulary."""
    unknown = self.tokenizer.unknown
    return 0 if unknown is None else int(np.sum(self.framed.ids_L == unknown))

  @functools.cached_property
  def logprob(self) -> float:
    """The log-probability of the tokens that count, in nats."""
    counted = self.values.logprob_L[self.framed.counted_L]
    return float(np.sum(counted, dtype=np.float64))

  @property
  def loss(self) -> float:
    """Nats per token."""
    return -self.logprob / self.token_count

  @property
  def perplexity(self) -> float:
    return math.exp(min(self.loss, LARGEST))

  @property
  def bits_per_byte(self) -> float | None:
    """Bits per byte of the text.

    None if the text is empty, if the tokens don't determine it (a lossy
    tokenizer, or characters outside the vocabulary), or if only a part counts.
    """
    whole = self.tokenizer.lossless and not self.unknown_count
    if not (whole and self.byte_count and self.framed.counted_L.all()):
      return None
    return -self.logprob * NAT / self.byte_count

  @functools.cached_property
  def spans_Lx2(self) -> np.ndarray:
    """Where each token is in the text, see `framing.spans`."""
    return framing.spans(self.framed, self.tokenizer)

  def tokens(self) -> Iterator[Token]:
    """Yields all predicted tokens in order, also those that don't count."""
    values, tokenizer = self.values, self.tokenizer
    ids = np.append(values.top_LxK.ravel(), self.framed.ids_L)
    names = {i: readable(tokenizer.spelled[i]) for i in {*ids.tolist()}}
    columns = (self.framed.ids_L, self.spans_Lx2, self.framed.counted_L)
    for n, (i, (start, stop), counted) in enumerate(
      zip(*(column.tolist() for column in columns), strict=True)
    ):
      top = zip(values.top_LxK[n], values.top_logprob_LxK[n], strict=True)
      yield Token(
        i,
        names[i],
        None if start < 0 else start,
        None if stop < 0 else stop,
        float(values.logprob_L[n]),
        int(values.rank_L[n]),
        float(values.entropy_L[n]),
        counted,
        tuple(Alternative(int(j), names[int(j)], float(x)) for j, x in top),
      )


def readable(piece: bytes) -> str:
  """Returns a token's bytes as text; those of a cut character as '\\xe2'."""
  return piece.decode(errors='backslashreplace')
