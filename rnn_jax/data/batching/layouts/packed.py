"""Packing: several windows share a row; `starts` separates them.

A window goes to the first row with room for it, or to the row where it leaves
the least room ('best'). A window that fits nowhere waits for the next batch,
where it comes first.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import layout as layout_lib

lengths = layout_lib.longest


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  # The row for an example: the first with room, or the fullest.
  fit: str = config_lib.option('first', choices=('first', 'best'))

  restarts: ClassVar[bool] = True


def plan(block: layout_lib.Block) -> layout_lib.Laid:
  """Returns the plan of packed rows; see the package."""
  sizes, shapes = block.sizes, block.shapes
  left = iter(zip(range(len(sizes)), sizes.tolist(), strict=True))
  waiting: list[tuple[int, int]] = []  # windows and their sizes
  pieces: list[np.ndarray] = []
  while True:
    batch = _Rows(shapes[-1], block.data.fit == 'best')
    waiting = [each for each in waiting if not batch.take(*each)]
    # Searching beyond one batch's rows for a fit would gain little.
    while batch.has_room and len(waiting) < shapes[-1][0]:
      if (each := next(left, None)) is None:
        break
      if not batch.take(*each):
        waiting.append(each)
    if not batch.taken:
      break
    pieces.append(np.array(batch.taken, np.int64))
  row, at, item = np.concatenate([np.zeros((0, 3), np.int64), *pieces]).T
  number = np.repeat(np.arange(len(pieces)), [*map(len, pieces)])
  zero = np.zeros_like(item)
  shape = np.full(len(pieces), len(shapes) - 1)
  return layout_lib.Laid(shape, number, row, at, item, zero, sizes[item])


class _Rows:
  """The rows of a batch while they are filled."""

  def __init__(self, shape: tuple[int, int], best: bool) -> None:
    rows, self._length = shape
    self._room = np.full(rows, self._length)
    self._left = rows * self._length
    self._best = best
    self.taken: list[tuple[int, int, int]] = []  # row, at, window

  @property
  def has_room(self) -> bool:
    """Whether a row isn't full."""
    return self._left > 0

  def take(self, item: int, size: int) -> bool:
    """Puts a window into a row, if it fits one."""
    fits = self._room >= size
    if self._best:
      row = int(np.where(fits, self._room, self._length + 1).argmin())
    else:
      row = int(fits.argmax())
    if not fits[row]:
      return False
    self.taken.append((row, self._length - int(self._room[row]), item))
    self._room[row] -= size
    self._left -= size
    return True
