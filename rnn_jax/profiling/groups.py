"""Which devices a collective joins, from the text of a compiled program.

XLA writes the groups of an operation in one of four ways:

    {{0,1},{2,3}}                 listed; {} is one group of all
    [2,4]<=[8]                    0 ... 7 in rows of 4
    [4,2]<=[2,4]T(1,0)            0 ... 7 as 2 x 4, transposed, in rows of 2
    mesh['a'=4,'b'=2] {'b'}       0 ... 7 as 4 x 2, along the axes named

A collective-permute has pairs of source and target instead.
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from rnn_jax.profiling import collectives

COUNTED = re.compile(
  r'replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
LISTED = re.compile(r'replica_groups=\{(\{.*?\})?\}')
PAIRS = re.compile(r'source_target_pairs=\{(\{.*?\})\}')
GROUP = re.compile(r'\{([\d,]+)\}')
IDS = re.compile(r'device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)')


def members(attributes: str, devices: int) -> np.ndarray:
  """Returns the devices of each group, an array of [group, member].

  Args:
    attributes: of the operation, `hlo.Operation.attributes`.
    devices: how many the program is for.

  Raises:
    ValueError: they are written in a way not known here.
  """
  if found := collectives.NAMED.search(attributes):
    return _named(found, devices)
  if found := COUNTED.search(attributes):
    count, size, shape, order = found.groups()
    return _iota(shape, order).reshape(int(count), int(size))
  if found := PAIRS.search(attributes) or LISTED.search(attributes):
    if not found[1]:
      return np.arange(devices)[None]
    return np.array([_numbers(group) for group in GROUP.findall(found[1])])
  raise ValueError(
    'the devices of a collective are written in no known way; teach '
    f'rnn_jax/profiling/groups.py to read {attributes!r}'
  )


def along(
  groups: np.ndarray, sizes: Sequence[int], names: Sequence[str]
) -> tuple[str, ...]:
  """Returns the axes of a mesh along which devices of one group differ."""
  places = np.stack(np.unravel_index(groups, sizes))
  differ = (places != places[:, :, :1]).any((1, 2))
  return tuple(name for name, cut in zip(names, differ, strict=True) if cut)


def _named(found, devices):
  sizes = {name: int(n) for name, n in collectives.AXIS.findall(found[1])}
  ids = np.arange(devices)
  if order := IDS.search(found[0]):
    ids = _iota(*order.groups())
  parts = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", found[2])
  # An axis of which a part is taken is three: before, taken, behind.
  taken = {name: (int(a or 1), int(b or sizes[name])) for name, a, b in parts}
  shape, last = [], []
  for name, size in sizes.items():
    before, mine = taken.get(name, (size, 1))
    last.append(len(shape) + 1)
    shape += [before, mine, size // (before * mine)]
  rest = [axis for axis in range(len(shape)) if axis not in last]
  count = math.prod(shape[axis] for axis in last)
  return ids.reshape(shape).transpose(*rest, *last).reshape(-1, count)


def _iota(shape, order):
  shape = _numbers(shape)
  ids = np.arange(math.prod(shape)).reshape(shape)
  return ids.transpose(_numbers(order)) if order else ids


def _numbers(text):
  return [int(n) for n in text.split(',')]
