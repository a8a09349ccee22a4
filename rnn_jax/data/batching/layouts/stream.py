"""Streams: each row is a lane that reads one segment of text after another.

A batch is the next `length` steps of every lane, so that a state carried from
batch to batch has seen all of the segment so far. A lane whose segment ends
takes the next one within the batch. A segment is a window (windows.py).
"""

import dataclasses
import heapq
from typing import ClassVar
from typing import Self

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import layout as layout_lib

lengths = layout_lib.longest


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  # Keep the state between windows; only this layout makes it an option.
  carry_state: bool = False  # type: ignore[misc]
  # Tokens of a segment, which one row reads in sequence.
  segment_tokens: int = config_lib.option(16384, minimum=1)

  cuts_documents: ClassVar[bool] = True
  restarts: ClassVar[bool] = True
  pads: ClassVar[bool] = False

  def heldout(self, evaluate: config_lib.Evaluate) -> Self:
    """Returns a copy for a held-out pass."""
    return dataclasses.replace(
      super().heldout(evaluate),
      segment_tokens=evaluate.segment_tokens or self.segment_tokens,
    )

  def window_length(self) -> int:
    """Returns the tokens of a segment, which a lane reads to its end."""
    return self.segment_tokens


def plan(block: layout_lib.Block) -> layout_lib.Laid:
  """Returns the plan of lanes; see the package."""
  sizes = block.sizes
  lanes, length = block.shapes[-1]
  row, begin = _lanes(sizes.tolist(), lanes, length)
  first, last = begin // length, (begin + sizes - 1) // length
  item = np.repeat(np.arange(len(sizes)), last - first + 1)
  number = np.arange(len(item)) - np.searchsorted(item, item)
  batch = first[item] + number
  start = np.maximum(begin[item], batch * length)
  stop = np.minimum((begin + sizes)[item], (batch + 1) * length)
  order = np.lexsort((start, row[item], batch))
  pieces = batch, row[item], start % length, item, start - begin[item]
  shape = np.full(int(batch.max(initial=-1)) + 1, len(block.shapes) - 1)
  return layout_lib.Laid(shape, *(x[order] for x in (*pieces, stop - start)))


def _lanes(sizes, lanes, length):
  """Returns the lane of each segment, and where it begins there.

  A lane whose segment ends takes the next one: of lanes that end in the same
  window the first.
  """
  free = [(0, lane, 0) for lane in range(lanes)]  # window, lane, where it is
  placed = np.empty((len(sizes), 2), np.int64)
  for n, size in enumerate(sizes):
    _, lane, at = free[0]
    placed[n] = lane, at
    heapq.heapreplace(free, ((at + size) // length, lane, at + size))
  return placed.T
