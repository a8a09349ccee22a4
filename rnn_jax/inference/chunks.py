"""Texts of any length in chunks of a few lengths, which need few programs.

Chunks begin every LENGTHS[-1] tokens, and the state is carried from one to the
next, so that the device holds one chunk of a text of any length.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

LENGTHS = 64, 256  # tokens of a chunk; a text's last one may be shorter


class Chunk(NamedTuple):
  """Some steps of B rows.

  Attributes:
    arrays: BxL, those of the rows, int32.
    starts_BxL: 1 where a text begins and where there is padding.
    counts_B: how many steps aren't padding.
  """

  arrays: tuple[Any, ...]
  starts_BxL: Any
  counts_B: Any


def split(rows: Sequence[Sequence[np.ndarray]]) -> Iterator[Chunk]:
  """Yields the chunks of rows that are read together.

  Args:
    rows: of each, arrays of as many numbers: its ids, and what goes with them.
  """
  longest = max(len(own[0]) for own in rows)
  for begin in range(0, longest, LENGTHS[-1]):
    parts = [[x[begin : begin + LENGTHS[-1]] for x in own] for own in rows]
    counts_B = np.array([len(own[0]) for own in parts], np.int32)
    (length,) = lengths(counts_B.max())
    arrays = np.zeros((len(rows[0]), len(rows), length), np.int32)
    starts_BxL = np.zeros((len(rows), length), np.int32)
    starts_BxL[:, 0] = begin == 0
    for row, (count, own) in enumerate(zip(counts_B, parts, strict=True)):
      arrays[:, row, :count] = own
      # Padding restarts at each step: its positions stay within a table.
      starts_BxL[row, count:] = 1
    yield Chunk(tuple(arrays), starts_BxL, counts_B)


def lengths(count: int) -> tuple[int, ...]:
  """Returns the lengths of the chunks of a text of `count` tokens."""
  whole, rest = divmod(count, LENGTHS[-1])
  last = [next(n for n in LENGTHS if n >= rest)] if rest else []
  return (*[LENGTHS[-1]] * whole, *last)
