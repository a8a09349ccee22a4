"""Reads the text of a compiled program: operations, costs, modules.

What XLA added itself has no module of its own: it takes that of what is fused
into it, or of its operand that was made last (modules.py has the rest).
"""

import collections
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from rnn_jax.profiling import modules

BITS = re.compile(r'^[a-z]+?(\d+)')
COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\{$')
INSTRUCTION = re.compile(
  r'^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$'
)
ARRAY = re.compile(r'\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]')
OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
FRAME = re.compile(r'stack_frame_id=(\d+)')
ITERATIONS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
CALLED = re.compile(
  r'\b(?:calls|body|condition|to_apply|true_computation|false_computation)='
  r'%?([\w.\-]+)'
)
BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
# These run other operations, which are counted themselves.
CONTAINERS = {'while', 'call', 'conditional', 'async-start', 'async-done'}
# These only rename results of others, or are arguments.
NO_RESULT = CONTAINERS | {
  'bitcast',
  'get-tuple-element',
  'opt-barrier',
  'parameter',
  'tuple',
}


class Operation(NamedTuple):
  """An operation of the program.

  Attributes:
    arrays: (shape, bytes) of each array that it makes, as 'f32[8,32]'.
    path: the `op_name`, or ''.
    module: the module that it belongs to, or modules.NOBODY.
    file: of this package, where it was traced, as 'ops/gla'; or ''.
    operands: the names of what it reads.
    attributes: the rest of its line, as the text has it.
  """

  name: str
  opcode: str
  arrays: tuple[tuple[str, int], ...]
  path: str
  module: str
  file: str
  operands: tuple[str, ...]
  attributes: str


class Program:
  """The operations of a program's text.

  Attributes:
    name: of the program (the HLO module).
    operations: {name: Operation} of all that run by themselves, without what
      is fused into them.
    bodies: {computation: names of its operations}, in the order of the text. In
      a scheduled program that is the order in which they start.
    runs: how often each of them runs, {name: times}. A loop with an unknown
      number of iterations counts as one; a conditional runs every branch.
    devices: how many the program is for.
    computations: {computation: {name: Line}}, those that are fused as well.
    homes: {line: its computation}.
  """

  def __init__(self, text: str):
    self.name = re.match(r'HloModule ([\w.\-]+)', text)[1]
    header = text.partition('\n')[0]
    self.devices = math.prod(
      int(n)
      for n in re.findall(r'(?:num_partitions|replica_count)=(\d+)', header)
    )
    entry, computations = _computations(text)
    tables = modules.Frames(text)
    self.operations, self.runs = {}, collections.Counter()
    self.bodies, self.computations = {}, computations
    self.homes = {
      line: name for name, lines in computations.items() for line in lines
    }
    todo = [(entry, 1)]
    while todo:
      name, times = todo.pop()
      self.bodies[name] = tuple(computations[name])
      for raw in computations[name].values():
        if raw.name not in self.operations:
          one = self._operation(raw, computations[name], tables)
          self.operations[raw.name] = one
        self.runs[raw.name] += times
        # The end of an asynchronous operation names its computation again.
        if raw.opcode in CONTAINERS - {'async-done'}:
          todo += [(called, times * raw.iterations) for called in raw.called]
    self._of_kernels = {re.sub(r'\W', '_', x): x for x in self.operations}

  def _operation(self, raw, around, tables):
    """Returns the Operation of a line of a computation, `around`."""
    named = self._named(raw)
    if not named.path:
      read = [around[name] for name in raw.operands if name in around]
      # The operand made last is most often the reason for the operation.
      for other in sorted(read, key=lambda line: -line.number):
        if not named.path and other.opcode != 'parameter':
          named = self._named(other)
    file = tables.file(named.frame)
    return Operation(
      raw.name,
      raw.opcode,
      raw.arrays,
      named.path,
      modules.of(named.path, file),
      file,
      tuple(raw.operands),
      raw.rest,
    )

  def _named(self, raw):
    """Returns the line, or the last one fused into it that has a path."""
    if raw.path or raw.opcode in CONTAINERS:
      return raw
    inner = [
      line
      for name in raw.called
      for line in self.computations.get(name, {}).values()
      if line.path and line.opcode != 'parameter'
    ]
    return inner[-1] if inner else raw

  def of_kernel(self, name: str) -> str:
    """Returns the operation of a GPU's kernel, by the kernel's name.

    XLA names a kernel after its operation, with '_' for what isn't a letter or
    a digit. Kernels of libraries have names of their own.
    """
    return self._of_kernels.get(name, name)

  def is_container(self, name: str) -> bool:
    """Returns whether that operation's time is the time of others."""
    one = self.operations.get(name)
    return one is not None and one.opcode in CONTAINERS

  def module(self, name: str) -> str:
    """Returns the module of an operation, by the operation's name."""
    one = self.operations.get(name)
    return modules.NOBODY if one is None else one.module

  def largest(self, count: int) -> list[tuple[int, str, Operation]]:
    """Returns (bytes, shape, operation) of the largest results."""
    made = [
      (size, shape, operation)
      for operation in self.operations.values()
      if operation.opcode not in NO_RESULT
      for shape, size in operation.arrays
    ]
    return sorted(made, key=lambda x: (-x[0], x[2].name))[:count]


def array_bytes(dtype: str, dimensions: Iterable[int]) -> int:
  """Returns the bytes of an array of XLA's type, 'f32' or 'pred'."""
  match = BITS.match(dtype)
  bits = int(match[1]) if match else 8 * (dtype == 'pred')
  return math.ceil(math.prod(dimensions) * bits / 8)


class Line(NamedTuple):
  """A line of the text.

  Attributes:
    number: counts the lines of its computation.
    arrays: as of an Operation.
    called: the names of computations that it runs or that are fused into it.
    rest: what follows its operation's parenthesis.
  """

  number: int
  name: str
  opcode: str
  arrays: tuple[tuple[str, int], ...]
  path: str
  frame: str
  operands: list[str]
  called: list[str]
  rest: str

  @property
  def iterations(self) -> int:
    """How often a loop runs what it calls; 1 if XLA doesn't know."""
    known = ITERATIONS.search(self.rest)
    return int(known[1]) if known else 1


def _computations(text):
  """Returns (name of the entry, {computation: {name: Line}})."""
  entry, computations, now = '', {}, None
  for line in text.splitlines():
    if header := COMPUTATION.match(line):
      now = computations[header[2]] = {}
      entry = header[2] if header[1] else entry
    elif now is not None and (match := INSTRUCTION.match(line)):
      now[match[1]] = _raw(len(now), *match.groups())
  return entry, computations


def dimensions(line: Line) -> list[int]:
  """Returns those of the first array that a line makes."""
  return [
    int(n) for n in re.findall(r'\d+', line.arrays[0][0].partition('[')[2])
  ]


def _raw(number, name, shape, opcode, rest):
  path, frame = OP_NAME.search(rest), FRAME.search(rest)
  called = CALLED.findall(rest)
  for names in BRANCHES.findall(rest):
    called += [part.strip().lstrip('%') for part in names.split(',')]
  arrays = []
  for dtype, dimensions in ARRAY.findall(shape):
    sizes = [int(n) for n in dimensions.split(',') if n]
    arrays.append((f'{dtype}[{dimensions}]', array_bytes(dtype, sizes)))
  return Line(
    number,
    name,
    opcode,
    tuple(arrays),
    path[1] if path else '',
    frame[1] if frame else '',
    re.findall(r'%([\w.\-]+)', rest.partition(')')[0]),
    called,
    rest,
  )
