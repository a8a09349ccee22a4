"""Pools: batches that are as long as their longest row, rounded up.

The examples of `pool` batches are read, sorted by length, and split into
batches from the longest row down. The longest row of a batch determines its
shape, the first of `shapes` that fits, and so its number of rows. The shortest
rows, which don't fill a batch, lead the next pool, so that no row waits for
long. The seed shuffles the batches of a pool. A pool of one batch sorts
nothing: it pads consecutive rows.

The iterator's state holds only where its pool began; on restore the pool is
read again.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data import loader
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.batching.layouts import base

lengths = base.known


@dataclasses.dataclass(frozen=True)
class Config(base.Multiples):
  """Options of the layout, of section `data` of the config."""

  pool: int = config_lib.option(16, least=1)  # batches sorted together


def make(
  examples: loader.Loader,
  shapes: tuple[tuple[int, int], ...],
  data: Config,
  seed: int | None = None,
  corpus: Any = None,
) -> grain.DatasetIterator:
  """Returns the batches; the arguments are those of the package's `make`."""
  del corpus
  return Pooled(examples, shapes, data.pool, seed)


class Pooled(grain.DatasetIterator):
  """Batches of some of `shapes`, (rows, length), by ascending length."""

  def __init__(
    self,
    examples: loader.Loader,
    shapes: Sequence[tuple[int, int]],
    pool: int,
    seed: int | None = None,
  ) -> None:
    """Reads pools of `pool` batches; without a `seed` they aren't shuffled."""
    super().__init__(examples)
    self._examples = examples
    self._shapes = tuple(shapes)
    self._lengths = [length for _, length in self._shapes]
    self._pool = pool
    self._seed = seed
    # Fill of a batch in whole numbers: a full batch of any shape has `_whole`
    # parts, so a row of a shape with n rows has `_whole // n`.
    self._whole = math.lcm(*(rows for rows, _ in self._shapes))
    self._start(self._examples.get_state(), [])

  def __next__(self) -> batch_lib.Batch:
    if self._groups is None:
      self._read()
    while self._done == len(self._groups):
      if self._ended:
        raise StopIteration
      self._start(self._examples.get_state(), self._rest)
      self._read()
    self._done += 1
    return self._emit(self._groups[self._done - 1])

  def get_state(self) -> dict[str, Any]:
    left = [[position, number] for position, number, _ in self._left]
    return {'examples': self._began, 'left': left, 'done': self._done}

  def set_state(self, state: dict[str, Any]) -> None:
    self._examples.set_state(state['examples'])
    left = [
      (position, number, self._cut(self._examples.make(position))[number])
      for position, number in state['left']
    ]
    self._start(state['examples'], left, state['done'])

  def _start(self, began, left, done=0):
    """Prepares to read a pool; the rows `left` by the last one lead it."""
    self._began, self._left, self._done = began, left, done
    self._groups, self._rest, self._ended = None, [], False

  def _read(self):
    """Reads the pool and splits it into groups of rows, and a rest."""
    rows = []
    parts = sum(self._whole // self._capacity(len(x[-1])) for x in self._left)
    while parts < self._pool * self._whole and not self._ended:
      position, ids = next(self._examples, (None, ()))
      self._ended = position is None
      for number, row in enumerate(self._cut(ids)):
        rows.append((position, number, row))
        parts += self._whole // self._capacity(len(row))
    rows.sort(key=lambda row: -len(row[-1]))
    groups = [*self._group(self._fill(rows), rows)]
    if not self._ended and len(groups[-1]) < self._capacity(
      _longest(groups[-1])
    ):
      self._rest = groups.pop()
    if self._seed is not None:
      key = self._seed, self._began['position']
      order = np.random.default_rng(key).permutation(len(groups))
      groups = [groups[n] for n in order]
    self._groups = groups

  def _fill(self, rows):
    """Returns the leftover rows, completed with the shortest that fit."""
    group = [*self._left]
    longest = _longest(group) if group else 0
    while group and rows:
      longest = max(longest, len(rows[-1][-1]))
      if len(group) >= self._capacity(longest):
        break
      group.append(rows.pop())
    return group

  def _group(self, first, rows):
    """Yields `first`, then groups of rows, each for one batch."""
    if first:
      yield first
    while rows:
      count = self._capacity(_longest(rows))
      yield rows[:count]
      del rows[:count]

  def _shape(self, size):
    """Returns the shape of a batch whose longest row has `size` ids."""
    return self._shapes[int(np.searchsorted(self._lengths, size - 1))]

  def _capacity(self, size):
    return self._shape(size)[0]

  def _cut(self, ids):
    return rows_lib.cut(ids, self._lengths[-1])

  def _emit(self, group):
    batch = rows_lib.blank(*self._shape(_longest(group)))
    for row, (_, _, ids) in enumerate(group):
      rows_lib.write(batch, row, 0, ids)
    batch.starts_BxL[:, 0] = 1
    return batch


def _longest(rows):
  return max(len(ids) for _, _, ids in rows)
