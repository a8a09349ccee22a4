"""Schedules of kept states: which ones a recurrence stores for its gradient.

The backward pass visits the blocks of a row from the last to the first, and
needs the state before each. A schedule stores a few of these states at a time
and recomputes the others from the nearest stored one before them.

    uniform      every state: L/K of them for blocks of K steps, and each step
                 is recomputed once
    logarithmic  the state in the middle of the rest, and so on by halves:
                 log2(n) states, about log2(n)/2 more passes
    binomial     a given number of states where it costs least (treeverse)

For n blocks and s states besides the first, the least number of blocks that are
recomputed on the way is, r being the least with C(s + 1 + r, r) >= n,

    r n - C(s + 1 + r, r - 1)

Sources: Griewank, "Achieving Logarithmic Growth of Temporal and Spatial
Complexity in Reverse Automatic Differentiation", 1992; Griewank and Walther,
"Algorithm 799: revolve", 2000; for recurrent networks Gruslys et al.,
"Memory-Efficient Backpropagation Through Time", 2016.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

NAMES = ('uniform', 'logarithmic', 'binomial')


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Moves of states between slots, by which all blocks are reversed.

  Slot 0 holds the state before block 0; slot `kept` takes states that aren't
  stored. The i-th reversal is that of block n - 1 - i: it loads a slot, then
  runs the blocks advanced[offsets[i]:offsets[i + 1]] in order.

  Attributes:
    kept: the number of slots.
    swept: for each block, the slot of the state after it in the first sweep.
    loads: the slot where each reversal begins.
    offsets: n + 1 bounds in `advanced`.
    advanced: the blocks that are recomputed on the way.
    stored: the slot of the state after each of these.
  """

  kept: int
  swept: tuple[int, ...]
  loads: tuple[int, ...]
  offsets: tuple[int, ...]
  advanced: tuple[int, ...]
  stored: tuple[int, ...]

  @property
  def recomputed(self) -> int:
    """How many blocks are recomputed, including those that are reversed."""
    return len(self.advanced) + len(self.loads)


def make(name: str, blocks: int, kept: int = 0) -> Schedule:
  """Returns a schedule.

  Args:
    name: one of NAMES.
    blocks: the number of blocks in a row, 1 or more.
    kept: states that 'binomial' stores at a time, including the first; 0: as
      many as 'logarithmic'. The others ignore it.

  Raises:
    ValueError: an unknown name, no blocks, or kept below 0.
  """
  if name not in NAMES:
    raise ValueError(f'name={name!r}: choose one of {NAMES}')
  if blocks < 1 or kept < 0:
    raise ValueError(f'blocks={blocks}, kept={kept}: give 1 or more blocks')
  if name == 'uniform':
    return _Recorder(blocks, blocks, _one).schedule()
  halves = (blocks - 1).bit_length() + 1
  if name == 'logarithmic':
    return _Recorder(blocks, halves, _half).schedule()
  return _Recorder(blocks, min(kept or halves, blocks), best_split).schedule()


def least(blocks: int, states: int) -> int:
  """Returns the least number of blocks that are recomputed on the way.

  Args:
    blocks: to reverse, 1 or more.
    states: stored besides the first, 0 or more.
  """
  if states == 0:
    return blocks * (blocks - 1) // 2
  repeats = 0
  while math.comb(states + 1 + repeats, repeats) < blocks:
    repeats += 1
  if repeats == 0:
    return 0
  return repeats * blocks - math.comb(states + 1 + repeats, repeats - 1)


@functools.cache
def best_split(blocks: int, states: int) -> int:
  """Returns the best number of blocks to the next stored state.

  Args:
    blocks: to reverse, 2 or more.
    states: stored besides the first, 1 or more.
  """
  costs = [
    ahead + least(blocks - ahead, states - 1) + least(ahead, states)
    for ahead in range(1, blocks)
  ]
  return int(np.argmin(costs)) + 1


def _one(blocks, states):
  del blocks, states
  return 1


def _half(blocks, states):
  del states
  return (blocks + 1) // 2


class _Recorder:
  """Follows the recursion of a schedule and records its moves."""

  def __init__(
    self, blocks: int, kept: int, split: Callable[[int, int], int]
  ) -> None:
    self._kept, self._split = kept, split
    self._swept = [kept] * blocks
    self._loads: list[int] = []
    self._offsets = [0]
    self._advanced: list[int] = []
    self._stored: list[int] = []
    self._free = list(range(kept - 1, 0, -1))
    self._start: int | None = None  # slot from which the next reversal starts
    self._reverse(blocks)

  def schedule(self) -> Schedule:
    return Schedule(
      kept=self._kept,
      swept=tuple(self._swept),
      loads=tuple(self._loads),
      offsets=tuple(self._offsets),
      advanced=tuple(self._advanced),
      stored=tuple(self._stored),
    )

  def _reverse(self, blocks):
    """Reverses the parts of a row, the last one first."""
    sweeping = True
    parts = [(0, blocks, 0, None)]  # begin, end, its state's slot, slot to free
    while parts:
      begin, end, slot, unused = parts.pop()
      if unused is not None:
        self._free.append(unused)
      while end - begin > 1 and self._free:
        middle = begin + self._split(end - begin, len(self._free))
        taken = self._free.pop()
        if sweeping:
          self._swept[middle - 1] = taken
        else:
          self._advance(begin, middle, slot, taken)
        parts.append((begin, middle, slot, taken))
        begin, slot = middle, taken
      self._reverse_one_by_one(begin, end, slot)
      sweeping = False

  def _reverse_one_by_one(self, begin, end, slot):
    for block in range(end - 1, begin - 1, -1):
      self._advance(begin, block, slot, self._kept)
      self._loads.append(self._start)
      self._offsets.append(len(self._advanced))
      self._start = None

  def _advance(self, begin, end, slot, taken):
    if self._start is None:
      self._start = slot
    self._advanced += range(begin, end)
    self._stored += [self._kept] * (end - begin)
    if end > begin:
      self._stored[-1] = taken
