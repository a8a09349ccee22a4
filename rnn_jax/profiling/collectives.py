"""What the devices of a compiled program send each other, and which join.

Of b bytes, among n devices in a ring, each device sends

    all-reduce           2 (n - 1) / n  b     b: the sum
    all-gather             (n - 1) / n  b     b: all that is gathered
    reduce-scatter         (n - 1) / n  b     b: all that is summed
    all-to-all             (n - 1) / n  b     b: all that a device has
    collective-permute                  b     b: what is passed on

XLA writes the groups of devices of an operation in one of four ways:

    {{0,1},{2,3}}                 listed; {} is one group of all
    [2,4]<=[8]                    0 ... 7 in rows of 4
    [4,2]<=[2,4]T(1,0)            0 ... 7 as 2 x 4, transposed, in rows of 2
    mesh['a'=4,'b'=2] {'b'}       0 ... 7 as 4 x 2, along the named axes

A collective-permute has pairs of source and target instead.

Source: Thakur et al., "Optimization of Collective Communication Operations in
MPICH", 2005.
"""

import collections
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnn_jax.profiling import hlo

# Ring steps: how many times (n - 1) / n of the bytes leave a device.
ROUNDS = {
  'all-reduce': 2,
  'all-gather': 1,
  'reduce-scatter': 1,
  'all-to-all': 1,
}
PERMUTE = 'collective-permute'
LISTED = re.compile(r'(?:replica_groups|source_target_pairs)=\{(\{.*?\})?\}')
COUNTED = re.compile(
  r'replica_groups=\[\d+,(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
NAMED = re.compile(
  r'replica_groups=mesh\[([^\]]*)\]'
  r'(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? ?\{([^}]*)\}'
)
AXIS = re.compile(r"'([^']*)'=(\d+)")
PART = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")


class Collective(NamedTuple):
  """An operation by which devices exchange numbers.

  Attributes:
    opcode: as in the table above, whether or not it is asynchronous.
    bytes: b of the table above.
    group: the number of devices among which it runs, n.
    times: how often the program runs it (`hlo.Program.runs`).
  """

  opcode: str
  bytes: int
  group: int
  times: int

  @property
  def sent(self) -> float:
    """The bytes that one device sends for all runs."""
    if self.opcode == PERMUTE:
      return self.bytes * self.times
    share = ROUNDS[self.opcode] * (self.group - 1) / self.group
    return share * self.bytes * self.times


def collectives(text: str) -> list[Collective]:
  """Returns the collectives of a compiled program's text, in no set order.

  Raises:
    ValueError: a group of devices is written in an unknown way.
  """
  return [one for one, _ in with_operations(hlo.Program(text))]


def is_one(operation: hlo.Operation) -> bool:
  """Returns whether an operation is a collective, or the start of one."""
  opcode = operation.opcode.removesuffix('-start')
  return opcode in ROUNDS or opcode == PERMUTE


def with_operations(
  program: hlo.Program,
) -> list[tuple[Collective, hlo.Operation]]:
  """Returns the collectives of a program, each with its operation.

  Raises:
    ValueError: as `collectives`.
  """
  pairs = []
  for name, operation in program.operations.items():
    opcode = operation.opcode.removesuffix('-start')
    if is_one(operation):
      joined = members(operation.attributes, program.devices)
      group = joined.shape[1]
      if opcode == PERMUTE:
        group = len(np.unique(joined))
      size = _result(operation) * (group if opcode == 'reduce-scatter' else 1)
      one = Collective(opcode, size, group, program.runs[name])
      pairs.append((one, operation))
  return pairs


def wire_bytes(text: str) -> dict[str, float]:
  """Returns the bytes that one device sends in a run of the program.

  Args:
    text: of the compiled program, `compiled.as_text()`.

  Returns:
    {opcode: bytes}, of the opcodes that occur in it.
  """
  sent = collections.defaultdict(float)
  for one in collectives(text):
    sent[one.opcode] += one.sent
  return dict(sent)


def members(attributes: str, devices: int) -> np.ndarray:
  """Returns the devices of each group, an array of [group, member].

  Args:
    attributes: of the operation, `hlo.Operation.attributes`.
    devices: how many the program is for.

  Raises:
    ValueError: they are written in an unknown way.
  """
  if named := NAMED.search(attributes):
    return _named(*named.groups(), devices)
  if counted := COUNTED.search(attributes):
    size, shape, order = counted.groups()
    return _iota(shape, order).reshape(-1, int(size))
  if listed := LISTED.search(attributes):
    if not listed[1]:
      return np.arange(devices)[None]
    return np.array([*map(_numbers, re.findall(r'[\d,]*\d', listed[1]))])
  raise ValueError(
    'the devices of a collective are written in an unknown way; extend '
    f'rnn_jax/profiling/collectives.py to read {attributes!r}'
  )


def along(
  groups: np.ndarray, sizes: Sequence[int], names: Sequence[str]
) -> tuple[str, ...]:
  """Returns the axes of a mesh along which devices of one group differ."""
  places = np.stack(np.unravel_index(groups, sizes))
  differ = (places != places[:, :, :1]).any((1, 2))
  return tuple(name for name, cut in zip(names, differ, strict=True) if cut)


def _result(operation):
  """The bytes of the result, whatever else a start's tuple holds."""
  sizes, count = [size for _, size in operation.arrays], len(operation.operands)
  if operation.opcode.endswith('-start') and len(sizes) >= 2 * count:
    return sum(sizes[count : 2 * count])
  return sum(sizes)


def _named(axes, shape, order, along, devices):
  sizes = {name: int(n) for name, n in AXIS.findall(axes)}
  ids = _iota(shape, order) if shape else np.arange(devices)
  # An axis of which a part is taken is three: before, taken, after.
  taken = {
    name: (int(before or 1), int(size or sizes[name]))
    for name, before, size in PART.findall(along)
  }
  shape, last = [], []
  for name, size in sizes.items():
    before, own = taken.get(name, (size, 1))
    last.append(len(shape) + 1)
    shape += [before, own, size // (before * own)]
  rest = [axis for axis in range(len(shape)) if axis not in last]
  count = math.prod(shape[axis] for axis in last)
  return ids.reshape(shape).transpose(*rest, *last).reshape(-1, count)


def _iota(shape, order):
  shape = _numbers(shape)
  ids = np.arange(math.prod(shape)).reshape(shape)
  return ids.transpose(_numbers(order)) if order else ids


def _numbers(text):
  return [int(n) for n in text.split(',')]
