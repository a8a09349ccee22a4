"""What one device sends in a compiled program, and what travels meanwhile.

A GPU's program starts a collective and waits for it later:

    %s = (f32[8], f32[64]) all-gather-start(%x), ...
    %f = f32[8] fusion(%y), ...
    %d = f32[64] all-gather-done(%s)

What XLA's schedule has between the two, a fusion here, is computed while the
bytes travel. A pair with nothing in between is waited for, and so is a
collective without a pair.

What is computed meanwhile takes at least the time of its bytes of memory and of
its matmuls.

A CPU's program has no such schedule. There, what goes only along SHARED is
assumed to overlap enough computation: gradients and parameters, which the
work of other layers can hide.
"""

import collections
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from rnn_jax.parallel import axes
from rnn_jax.profiling import collectives
from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo
from rnn_jax.system import target

SHARED = {'data', 'fsdp'}  # axes along which only rows are split
# The CPU's compiler sums 16-bit numbers in 32 bits, under this name; other
# devices send 16 bits.
PROMOTED = re.compile(r'to_apply=%?[\w.\-]*_promoted\b')
# These take no time of a device.
FREE = hlo.NO_RESULT - {'while', 'call', 'conditional'} | {
  'after-all',
  'constant',
  'iota',
  'partition-id',
  'replica-id',
}


class Sent(NamedTuple):
  """What one device sends in a step, by one kind of collective.

  Attributes:
    opcode: as in collectives.py.
    axes: of the mesh, along which the devices of a group are.
    bytes: in all.
    runs: how many such collectives run.
    beside: of the bytes, those that travel while the device computes.
    traffic: bytes of memory that it reads and writes meanwhile.
    flops: operations of the matmuls that it computes meanwhile.
  """

  opcode: str
  axes: tuple[str, ...]
  bytes: float
  runs: int
  beside: float
  traffic: float
  flops: float


def of(program: hlo.Program, sizes: Iterable[int]) -> tuple[Sent, ...]:
  """Returns what a device sends, by collective and by the axes of its group.

  Args:
    program: as it was compiled.
    sizes: of the mesh's axes.
  """
  sizes = tuple(sizes)
  working = computed_beside(program)
  total = {}
  for collective, operation in collectives.with_operations(program):
    joined = collectives.members(operation.attributes, math.prod(sizes))
    along = collectives.along(joined, sizes, axes.NAMES)
    own = collective.sent
    own /= 2 if PROMOTED.search(operation.attributes) else 1
    if target.platform() == 'gpu':
      beside = working[operation.name]
      each = (costs.of(program, name) for name in beside)
      work = sum(each, costs.NOTHING).times(collective.times)
      cost = work.bytes, work.flops
    else:
      beside = SHARED.issuperset(along)
      cost = math.inf, math.inf
    one = own, collective.times, own * bool(beside), *cost
    before = total.get((collective.opcode, along), [0] * len(one))
    total[collective.opcode, along] = [*map(sum, zip(before, one, strict=True))]
  return tuple(Sent(*key, *value) for key, value in sorted(total.items()))


def computed_beside(program: hlo.Program) -> dict[str, tuple[str, ...]]:
  """Returns what is computed while each collective of a program travels.

  Returns:
    {collective: names of operations}, () for one that is waited for; the
    collectives are those of `collectives.with_operations`.
  """
  beside = collections.defaultdict(tuple)
  for names in program.bodies.values():
    place = {name: number for number, name in enumerate(names)}
    for name in names:
      one = program.operations[name]
      if one.opcode.endswith('-done') and one.operands[0] in place:
        start = one.operands[0]
        between = names[place[start] + 1 : place[name]]
        working = tuple(x for x in between if _works(program.operations[x]))
        beside |= dict.fromkeys(_collectives(program, start), working)
  return beside


def _works(operation):
  opcode = operation.opcode
  return opcode not in FREE and not opcode.endswith(('-start', '-done'))


def _collectives(program, start):
  """The start itself, or what the computation that it wraps holds."""
  operation = program.operations[start]
  if operation.opcode != 'async-start':
    return [start]
  called = hlo.CALLED.findall(operation.attributes)
  return [name for body in called for name in program.bodies.get(body, ())]
