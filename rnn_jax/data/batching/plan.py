"""Plans: which windows are in which batch, from the column of lengths.

    order: place -> window of an epoch     (order.py, curriculum.py)
    layout: sizes of windows -> pieces     (layouts/)
    plan: batch -> (row, at, example, start, stop, epoch) of each piece

The order of a run is endless. It is planned in blocks of places, each of which
depends only on the seed and its number: so a batch is made without those before
it, by any process, and memory holds the plan of one block. A block has whole
epochs, or an epoch has whole blocks, so that an epoch ends where a block does.

How many batches a block has isn't known before it is planned. Therefore the
number of a batch is not counted from the first one: it is

    block * EACH + place in the block.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import layout as layout_lib
from rnn_jax.data.batching import levels as levels_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.batching import shapes as shapes_lib
from rnn_jax.data.batching import windows as windows_lib

BLOCK = 2**12  # windows of a block, at least
BATCHES = 256  # the same: the last may be padded
EACH = 2**32

Order = Callable[[np.ndarray], np.ndarray]
Shapes = tuple[tuple[int, int], ...]
# The rows of a batch that this process makes, by the number of its rows.
Own = dict[int, np.ndarray]


class Pieces(NamedTuple):
  """What rows are made of, a number for each piece.

  Attributes:
    row, at: where its row predicts its first id.
    example, start, stop, epoch: it reads ids start to stop - 1.
    begins: whether it is the first of its window.
  """

  row: np.ndarray
  at: np.ndarray
  example: np.ndarray
  start: np.ndarray
  stop: np.ndarray
  epoch: np.ndarray
  begins: np.ndarray


class Plan(NamedTuple):
  """The batches of a block.

  Attributes:
    shapes: (rows, length) of each batch.
    ends: where the pieces of each batch end.
    pieces: of all batches, in turn.
  """

  shapes: list[tuple[int, int]]
  ends: np.ndarray
  pieces: Pieces

  def of(self, batch: int) -> Pieces:
    """Returns the pieces of a batch."""
    start = self.ends[batch - 1] if batch else 0
    return Pieces(*(x[start : self.ends[batch]] for x in self.pieces))

  @property
  def tokens(self) -> int:
    """The number of predictions in all batches."""
    return int(np.sum(self.pieces.stop - self.pieces.start - 1))

  @property
  def padded_tokens(self) -> int:
    """The same with padding."""
    return sum(rows * length for rows, length in self.shapes)


class Planned(NamedTuple):
  """A batch before any id of it is read: little to send to a worker.

  Attributes:
    number: of the batch.
    stage: the number of the stage that it is of.
    shape: (rows, length).
    pieces: what it is made of.
  """

  number: int
  stage: int
  shape: tuple[int, int]
  pieces: Pieces


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
  """Consecutive epochs whose windows are planned in the same way.

  Attributes:
    data: section `data` of the config for these epochs.
    examples: of the split, a text.examples.base.Examples.
    windows: of the examples.
    order: the window at each place, endless; `count` places are an epoch.
    count: see there.
    shapes: (rows, length) of batches, by ascending length.
    seed: of what the layout leaves open; None: nothing is shuffled.
    split: puts rows of a bucket on levels, or None.
    first: the first epoch.
    end: the epoch after the last one; None: it never ends.
  """

  data: config_lib.Data
  examples: Any
  windows: windows_lib.Windows
  order: Order
  count: int
  shapes: Shapes
  seed: int | None = None
  split: levels_lib.Split | None = None
  first: int = 0
  end: int | None = None

  @property
  def _per_epoch(self):
    """Blocks of an epoch; 1 where a block has whole epochs."""
    return -(-self.count // self._target)

  @functools.cached_property
  def _target(self):
    """The windows of a block, about."""
    rows = max(rows for rows, _ in self.shapes)
    tokens = max(rows * length for rows, length in self.shapes)
    filled = max(rows, tokens / max(self.windows.mean, 1))
    return max(BLOCK, math.ceil(BATCHES * filled))

  @property
  def epochs(self) -> float:
    """The epochs of a block."""
    if self._per_epoch > 1:
      return 1 / self._per_epoch
    return self._target // self.count

  @property
  def blocks(self) -> int | None:
    """The number of blocks; None: it never ends."""
    if self.end is None:
      return None
    epochs = self.end - self.first
    if self._per_epoch > 1:
      return epochs * self._per_epoch
    return -(-epochs // int(self.epochs))

  def places(self, block: int) -> np.ndarray:
    """Returns the places of a block in the order."""
    if self._per_epoch > 1:
      epoch, part = divmod(block, self._per_epoch)
      size = -(-self.count // self._per_epoch)
      begin = (self.first + epoch) * self.count
      places = np.arange(part * size, min((part + 1) * size, self.count))
      return begin + places
    epochs = int(self.epochs)
    first = self.first + block * epochs
    last = first + epochs if self.end is None else min(first + epochs, self.end)
    return np.arange(first * self.count, last * self.count)

  def plan(self, block: int) -> Plan:
    """Returns the plan of a block."""
    places = self.places(block)
    epoch = places // self.count
    window = self.order(places)
    example, start, stop = self.windows.at(window, epoch)
    filled = np.flatnonzero(stop - start > 1)
    example, start, stop, epoch = (
      x[filled] for x in (example, start, stop, epoch)
    )
    levels = None
    if self.split is not None:
      levels = self._levels(example, start, stop, epoch)
    seed = None if self.seed is None else (self.seed, self.first, block)
    sizes = stop - start - 1
    laid = shapes_lib.layout(self.data).plan(
      layout_lib.Block(sizes, self.shapes, self.data, seed, levels)
    )
    return _plan(laid, self.shapes, example, start, epoch)

  def _levels(self, *places):
    lengths = [length for _, length in self.shapes]
    buckets = np.searchsorted(lengths, places[2] - places[1] - 1)
    read = map(self.examples.read, *(x.tolist() for x in places))
    levels = map(self.split.level, buckets.tolist(), read)
    return np.fromiter(levels, np.int64, len(buckets))


def _plan(laid: layout_lib.Laid, shapes, example, start, epoch):
  first = start[laid.item] + laid.skip
  pieces = Pieces(
    laid.row,
    laid.at,
    example[laid.item],
    first,
    first + laid.size + 1,
    epoch[laid.item],
    laid.skip == 0,
  )
  ends = np.searchsorted(laid.batch, np.arange(len(laid.shape)), side='right')
  return Plan([shapes[n] for n in laid.shape], ends, pieces)


class Batches:
  """The batches of stages.

  Args:
    stages: in turn; only the last may never end.
    own: which rows are made, the others stay blank; None: all.
    unpack: of a batch, what the task makes of it; None: itself.
  """

  def __init__(
    self,
    stages: list[Stage],
    own: Own | None = None,
    unpack: Callable[[batch_lib.Batch], batch_lib.Batch] | None = None,
  ) -> None:
    self._stages = stages
    self._own = own
    self._unpack = unpack

  def planned(self, first: int = 0) -> Iterator[Planned]:
    """Yields the plans of batches in turn, from number `first` on."""
    block, place = divmod(first, EACH)
    while (located := self._located(block)) is not None:
      stage, own = located
      plan = self._stages[stage].plan(own)
      for n in range(place, len(plan.shapes)):
        yield Planned(block * EACH + n, stage, plan.shapes[n], plan.of(n))
      block, place = block + 1, 0

  def make(self, planned: Planned) -> batch_lib.Batch:
    """Returns a batch."""
    _, stage, shape, pieces = planned
    own = None if self._own is None else self._own[shape[0]]
    batch = _write(pieces, shape, self._stages[stage], own)
    return batch if self._unpack is None else self._unpack(batch)

  def _located(self, block):
    """Returns (stage of a block, its number in it); None: there are no more."""
    for n, stage in enumerate(self._stages):
      if stage.blocks is None or block < stage.blocks:
        return n, block
      block -= stage.blocks
    return None


def _write(pieces, shape, stage, own):
  """Returns a batch, of which the rows of `own` are made."""
  if stage.data.holds_images:
    batch = rows_lib.blank_images(shape[0], stage.data.image)
    write = rows_lib.write_image
  else:
    if stage.data.holds_series:
      besides = stage.data.covariate_widths
      batch = rows_lib.blank_series(*shape, stage.data.widths, besides)
      write = rows_lib.write_series
    else:
      batch, write = rows_lib.blank(*shape), rows_lib.write
    end = pieces.at + pieces.stop - pieces.start - 1
    short = end < shape[1]
    batch.starts_BxL[pieces.row[short], end[short]] = rows_lib.PADDING
    batch.starts_BxL[pieces.row, pieces.at] = pieces.begins
    if not stage.data.carry_state:
      batch.starts_BxL[:, 0] = 1
    padding = np.ones(shape[0], bool)
    padding[pieces.row] = False
    batch.starts_BxL[padding, 0] = 1  # so that no state leaks
  *columns, _ = pieces
  for row, at, *place in zip(*(x.tolist() for x in columns), strict=True):
    if own is None or own[row]:
      write(batch, row, at, stage.examples.read(*place))
  return batch
