"""Pools: batches that are as long as their longest row, rounded up.

The windows of `pool` batches are sorted by length, and split into batches from
the longest row down. The longest row of a batch determines its shape, the first
of `shapes` that fits, and so its number of rows. The shortest rows, which don't
fill a batch, lead the next pool, so that no row waits for long. The seed
shuffles the batches of a pool.
"""

import dataclasses

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import layout as layout_lib

lengths = layout_lib.known


@dataclasses.dataclass(frozen=True)
class Config(layout_lib.Multiples):
  """Options of the layout, of section `data` of the config."""

  pool: int = config_lib.option(16, minimum=1)  # batches sorted together


def plan(block: layout_lib.Block) -> layout_lib.Laid:
  """Returns the plan of pools; see the package."""
  sizes, shapes = block.sizes, block.shapes
  rows = np.array([rows for rows, _ in shapes])
  shape = np.searchsorted([length for _, length in shapes], sizes)
  capacity = rows[shape]
  filled = np.cumsum(1 / capacity)  # batches, up to each window
  batches: list[tuple[int, np.ndarray]] = []
  left, begin = np.zeros(0, np.int64), 0
  while begin < len(sizes) or len(left):
    before = filled[begin - 1] if begin else 0.0
    full = before + block.data.pool - np.sum(1 / capacity[left]) - 1e-9
    end = min(int(np.searchsorted(filled, full)) + 1, len(sizes))
    inside = np.arange(begin, max(end, begin))
    inside = inside[np.argsort(-sizes[inside], kind='stable')]
    groups = _groups(left, inside, sizes, capacity)
    left = np.zeros(0, np.int64)
    last = groups[-1]
    if end < len(sizes) and len(last) < capacity[_longest(last, sizes)]:
      left = groups.pop()
    if block.seed is not None:
      order = np.random.default_rng((*block.seed, begin)).permutation(
        len(groups)
      )
      groups = [groups[n] for n in order]
    batches += [(int(shape[_longest(x, sizes)]), x) for x in groups]
    begin = end
  return layout_lib.one_per_row(batches, sizes)


def _groups(left, inside, sizes, capacity):
  """Returns the windows of each batch of a pool, sorted from the longest.

  The first are those that were `left`, completed with the shortest that fit.
  """
  groups = []
  if len(left):
    taken = 0
    longest = left[0]
    while taken < len(inside):
      shortest = inside[len(inside) - 1 - taken]
      longest = shortest if sizes[shortest] > sizes[longest] else longest
      if len(left) + taken >= capacity[longest]:
        break
      taken += 1
    cut = len(inside) - taken
    groups.append(np.concatenate([left, inside[cut:][::-1]]))
    inside = inside[:cut]
  while len(inside):
    count = capacity[inside[0]]
    groups.append(inside[:count])
    inside = inside[count:]
  return groups


def _longest(windows, sizes):
  return windows[np.argmax(sizes[windows])]
