"""Pools: batches that are as long as their longest row, rounded up.

`pool` batches' worth of examples are read, sorted by length, and dealt out
from the longest down. The longest row of a batch chooses its shape, the first
of `shapes` that holds it, and with it how many rows there are. What is left
over, the shortest rows, leads the next pool, so that no row waits for long.
The batches of a pool come in the order that the seed gives them. A pool of one
batch sorts nothing: it pads the rows that happen to follow one another.

Where a pool began is all that the iterator's state holds: restored, it is read
again.
"""

import dataclasses
import math
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

  pool: int = config_lib.option(16, least=1)  # batches that are sorted together


def make(
  examples: loader.Ordered,
  shapes: tuple[tuple[int, int], ...],
  data: config_lib.Data,
  seed: int | None = None,
  corpus: Any = None,
) -> grain.DatasetIterator:
  """Returns the batches, see the package's docstring."""
  del corpus
  return Pooled(examples, shapes, data.pool, seed)


class Pooled(grain.DatasetIterator):
  """Batches of some of `shapes`, (rows, length) each, with rising lengths."""

  def __init__(
    self,
    examples: loader.Ordered,
    shapes,
    pool: int,
    seed: int | None = None,
  ):
    """Reads pools of `pool` batches; without a `seed` they come unshuffled."""
    super().__init__(examples)
    self._examples = examples
    self._shapes = tuple(shapes)
    self._lengths = [length for _, length in self._shapes]
    self._pool = pool
    self._seed = seed
    # A row is so many parts of a batch of its shape, which has `_whole`.
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

  def get_state(self) -> dict:
    left = [[position, number] for position, number, _ in self._left]
    return {'examples': self._began, 'left': left, 'done': self._done}

  def set_state(self, state: dict) -> None:
    self._examples.set_state(state['examples'])
    left = [
      (position, number, self._cut(self._examples.make(position))[number])
      for position, number in state['left']
    ]
    self._start(state['examples'], left, state['done'])

  def _start(self, began, left, done=0):
    """Stands before a pool: what is `left` of the last one leads it."""
    self._began, self._left, self._done = began, left, done
    self._groups, self._rest, self._ended = None, [], False

  def _read(self):
    """Reads the pool and deals it out into groups of rows, and a rest."""
    rows = []
    parts = sum(self._whole // self._capacity(len(x[-1])) for x in self._left)
    while parts < self._pool * self._whole and not self._ended:
      position, ids = next(self._examples, (None, ()))
      self._ended = position is None
      for number, row in enumerate(self._cut(ids)):
        rows.append((position, number, row))
        parts += self._whole // self._capacity(len(row))
    rows.sort(key=lambda row: -len(row[-1]))
    groups = [*self._deal(self._fill(rows), rows)]
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
    """Returns what was left, with the shortest rows that fit beside it."""
    group = [*self._left]
    longest = _longest(group) if group else 0
    while group and rows:
      longest = max(longest, len(rows[-1][-1]))
      if len(group) >= self._capacity(longest):
        break
      group.append(rows.pop())
    return group

  def _deal(self, first, rows):
    """Yields `first` and the rows behind it, each group of one shape."""
    if first:
      yield first
    while rows:
      count = self._capacity(_longest(rows))
      yield rows[:count]
      del rows[:count]

  def _shape(self, size):
    """Returns the shape of rows of so many ids and fewer."""
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
