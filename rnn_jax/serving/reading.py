"""How a text is read: borders of chunks that only the text decides.

A text is a sequence of segments. In a model that was trained on turns, each
boundary ends one; in others all of a text is one. From its beginning, a segment
is read as the largest chunks of fixed sizes that fit, and its last tokens, too
few for the smallest size, step by step:

    sizes 16, 64:   150 tokens = 64 + 64 + 16 + 6 steps

Each chunk is one call of a program for one row. Its key is a chained digest,
SHA-256 of (the key before, the chunk's tokens). Equal keys are equal calls from
the text's beginning on, hence equal states, to the last bit. States at the ends
of the largest chunks and of segments are worth keeping: other texts that begin
in the same way have the same ones.
"""

import dataclasses
import hashlib

import numpy as np

from rnn_jax import errors

SIZES = 16, 64, 256


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
  """One call of a program.

  Attributes:
    tokens: its tokens, int32.
    key: of the state after it.
    kept: whether other texts may continue from that state.
  """

  tokens: np.ndarray
  key: bytes
  kept: bool


def check_sizes(sizes: tuple[int, ...]) -> None:
  """Checks the sizes of chunks.

  Raises:
    InputError: there are none, they don't rise, or one is below 2.
  """
  if not sizes or sizes[0] < 2 or list(sizes) != sorted(set(sizes)):
    errors.refuse('chunks', sizes, 'give rising whole numbers from 2 on')


def segments(ids: np.ndarray, boundary: int | None) -> list[np.ndarray]:
  """Returns the segments of a text; `boundary` ends one, None: all is one."""
  if boundary is None:
    return [ids] if len(ids) else []
  ends = np.flatnonzero(ids == boundary) + 1
  return [part for part in np.split(ids, ends) if len(part)]


def lengths(count: int, sizes: tuple[int, ...]) -> list[int]:
  """Returns the lengths of the chunks of a segment of `count` tokens."""
  made = []
  for size in reversed(sizes):
    made += [size] * (count // size)
    count %= size
  return made + [count] * bool(count)


def plan(
  key: bytes, ids: np.ndarray, boundary: int | None, sizes: tuple[int, ...]
) -> list[Chunk]:
  """Returns the chunks of a text.

  Args:
    key: of the state before the text, in which a segment has just ended.
    ids: the text's tokens.
    boundary: the token that ends a segment; None: only the text's end does.
    sizes: of chunks, rising.
  """
  chunks = []
  for segment in segments(np.asarray(ids, np.int32), boundary):
    begin = 0
    for length in lengths(len(segment), sizes):
      tokens = segment[begin : begin + length]
      begin += length
      key = hashlib.sha256(key + tokens.astype('<i4').tobytes()).digest()
      kept = length == sizes[-1] or begin == len(segment)
      chunks.append(Chunk(tokens, key, kept))
  return chunks
