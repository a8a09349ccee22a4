"""What the devices of a compiled program tell each other, in bytes.

Of b bytes, among n devices in a ring, each device sends

    all-reduce           2 (n - 1) / n  b     b: the sum
    all-gather             (n - 1) / n  b     b: all that is gathered
    reduce-scatter         (n - 1) / n  b     b: all that is summed
    all-to-all             (n - 1) / n  b     b: all that a device has
    collective-permute                  b     b: what is passed on

Source: Thakur et al., "Optimization of Collective Communication Operations in
MPICH", 2005.
"""

import collections
import math
import re
from typing import NamedTuple

from rnn_jax.profiling import hlo

# Ring steps: how many times (n - 1) / n of the bytes leave a device.
PASSES = {
  'all-reduce': 2,
  'all-gather': 1,
  'reduce-scatter': 1,
  'all-to-all': 1,
}
PERMUTE = 'collective-permute'
# {{0,1},{2,3}}; {}; [2,4]<=[8]; mesh['data'=4,'tensor'=2] {'data'}
LISTED = re.compile(r'replica_groups=\{(?:\{([\d,]*)\}.*?)?\}')
COUNTED = re.compile(r'replica_groups=\[\d+,(\d+)\]<=')
NAMED = re.compile(
  r'replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\)\))? ?\{([^}]*)\}'
)
AXIS = re.compile(r"'([^']*)'=(\d+)")
PART = re.compile(r"'([^']*)'(?::\(\d+\)(\d+))?")


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


def collectives(text: str) -> list[Collective]:
  """Returns the collectives of a compiled program's text, in no set order.

  Raises:
    ValueError: a group of devices is written in a way not known here.
  """
  return [found for found, _ in with_operations(hlo.Program(text))]


def with_operations(
  program: hlo.Program,
) -> list[tuple[Collective, hlo.Operation]]:
  """Returns the collectives of a program, each with the operation it is.

  Raises:
    ValueError: as `collectives`.
  """
  found = []
  for name, operation in program.operations.items():
    opcode = operation.opcode.removesuffix('-start')
    if opcode in PASSES or opcode == PERMUTE:
      group = _group(opcode, operation.attributes, program.devices)
      size = _result(operation) * (group if opcode == 'reduce-scatter' else 1)
      made = Collective(opcode, size, group, program.runs[name])
      found.append((made, operation))
  return found


def wire_bytes(text: str) -> dict[str, float]:
  """Returns the bytes that one device sends in a run of the program.

  Args:
    text: of the compiled program, `compiled.as_text()`.

  Returns:
    {opcode: bytes}, of the opcodes that occur in it.
  """
  sent = collections.defaultdict(float)
  for found in collectives(text):
    sent[found.opcode] += sent_bytes(found)
  return dict(sent)


def sent_bytes(found: Collective) -> float:
  """Returns the bytes that one device sends for all runs of a collective."""
  opcode, size, group, times = found
  passes = PASSES[opcode] * (group - 1) / group if opcode in PASSES else 1
  return passes * size * times


def _result(operation):
  """The bytes of what comes out, whatever else a start's tuple holds."""
  sizes, count = [size for _, size in operation.arrays], len(operation.operands)
  if operation.opcode.endswith('-start') and len(sizes) >= 2 * count:
    return sum(sizes[count : 2 * count])
  return sum(sizes)


def _group(opcode, attributes, devices):
  """How many devices take part in one group."""
  if opcode == PERMUTE:
    pairs = attributes.partition('source_target_pairs={')[2].partition('}}')[0]
    return len(set(re.findall(r'\d+', pairs)))
  if named := NAMED.search(attributes):
    sizes = {axis: int(size) for axis, size in AXIS.findall(named[1])}
    parts = PART.findall(named[2])
    return math.prod(int(part) if part else sizes[axis] for axis, part in parts)
  if counted := COUNTED.search(attributes):
    return int(counted[1])
  if listed := LISTED.search(attributes):
    return len(listed[1].split(',')) if listed[1] else devices
  raise ValueError(
    f'the devices of this {opcode} are written in no known way; teach '
    f'rnn_jax/profiling/collectives.py to read {attributes!r}'
  )
