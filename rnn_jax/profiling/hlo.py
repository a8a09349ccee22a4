"""The text of a compiled program: its operations, and whose they are.

XLA names each operation of the optimized program and keeps, as `op_name`, the
path that led to it while tracing:

  jit(train)/transpose(jvp(LanguageModel.features))/stack/while/body/.../mul

Without transformations, loops and the primitive at its end, that is the path of
the module: stack, in the backward pass. Where no module was entered, the source
file (frames.py) stands for it. What XLA made itself has neither: it goes by
what is fused into it, or by the last made of what it reads.
"""

import collections
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from rnn_jax.profiling import frames

BITS = re.compile(r'^[a-z]+?(\d+)')
COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\{$')
INSTRUCTION = re.compile(
  r'^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$'
)
ARRAY = re.compile(r'\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]')
OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
FRAME = re.compile(r'stack_frame_id=(\d+)')
TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
CALLED = re.compile(
  r'\b(?:calls|body|condition|to_apply|true_computation|false_computation)='
  r'%?([\w.\-]+)'
)
BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
# They run other operations, which are counted themselves.
CONTAINERS = {'while', 'call', 'conditional', 'async-start', 'async-done'}
# They only rename what others made, or come with the arguments.
NO_RESULT = CONTAINERS | {
  'bitcast',
  'get-tuple-element',
  'opt-barrier',
  'parameter',
  'tuple',
}
WRAPPERS = {
  'body',
  'branch',
  'checkpoint',
  'closed_call',
  'cond',
  'core_call',
  'custom_jvp_call',
  'custom_vjp_call',
  'rematted_computation',
  'remat',
  'shard_map',
  'while',
}
NOBODY = '(no module)'


class Operation(NamedTuple):
  """An operation of the program.

  Attributes:
    arrays: (shape, bytes) of each array that it makes, as 'f32[8,32]'.
    path: the `op_name`, or ''.
    module: whose it is; NOBODY if nothing tells.
    operands: the names of what it reads.
    attributes: the rest of its line, as the text has it.
  """

  name: str
  opcode: str
  arrays: tuple[tuple[str, int], ...]
  path: str
  module: str
  operands: tuple[str, ...]
  attributes: str


class Program:
  """The operations of a program's text.

  Attributes:
    name: of the program (the HLO module).
    operations: all that run by themselves, {name: Operation}; what is fused
      into one of them is not among them.
    runs: how often each of them runs, {name: times}. A loop of which XLA does
      not know the turns counts as one turn; of a conditional, every branch.
    devices: how many the program is for.
  """

  def __init__(self, text: str):
    self.name = re.match(r'HloModule ([\w.\-]+)', text)[1]
    header = text.partition('\n')[0]
    self.devices = math.prod(
      int(n)
      for n in re.findall(r'(?:num_partitions|replica_count)=(\d+)', header)
    )
    entry, computations = _computations(text)
    reader = _Reader(computations, frames.Frames(text))
    self.operations, self.runs = {}, collections.Counter()
    todo = [(entry, 1)]
    while todo:
      name, times = todo.pop()
      for raw in computations[name].values():
        if raw.name not in self.operations:
          self.operations[raw.name] = reader.read(raw, computations[name])
        self.runs[raw.name] += times
        # What has ended names again what its start has run.
        if raw.opcode in CONTAINERS - {'async-done'}:
          todo += [(called, times * raw.turns) for called in raw.called]

  def is_container(self, name: str) -> bool:
    """Whether that operation's time is the time of others."""
    found = self.operations.get(name)
    return found is not None and found.opcode in CONTAINERS

  def module(self, name: str) -> str:
    """Returns the module of an operation, by the operation's name."""
    found = self.operations.get(name)
    return NOBODY if found is None else found.module

  def largest(self, count: int) -> list[tuple[int, str, Operation]]:
    """Returns (bytes, shape, operation) of the largest results."""
    made = [
      (size, shape, operation)
      for operation in self.operations.values()
      if operation.opcode not in NO_RESULT
      for shape, size in operation.arrays
    ]
    return sorted(made, key=lambda x: (-x[0], x[2].name))[:count]


def module(path: str, file: str = '') -> str:
  """Returns the module of an `op_name`, '(backward)' or '(again)' behind it.

  Args:
    path: the `op_name`.
    file: what stands for a module where the path has none.
  """
  names = []
  for part in _split(path)[:-1]:
    if name := _unwrap(part):
      _enter(names, name)
  told = '/'.join(names) or file
  if not told:
    return NOBODY
  if 'rematted_computation' in path:
    return told + ' (again)'
  return told + ' (backward)' * ('transpose(' in path)


def _enter(names, name):
  """Adds a part of a path; 'cell.recur' takes the place of 'cell'.

  Methods that a method calls, those of the whole model, and sums in Einstein's
  notation, 'ij,jk->ik', are no places of their own.
  """
  instance, _, method = name.rpartition('.')
  last = names[-1].partition('.')[0] if names else None
  if not method or '->' in name:
    return
  if not instance:
    names.append(name)
  elif instance == last and '.' not in names[-1]:
    names[-1] = name


def array_bytes(dtype: str, dimensions: Iterable[int]) -> int:
  """Returns the bytes of an array of XLA's type, 'f32' or 'pred'."""
  found = BITS.match(dtype)
  bits = int(found[1]) if found else 8 * (dtype == 'pred')
  return math.ceil(math.prod(dimensions) * bits / 8)


def _split(path):
  """Cuts at '/' outside of parentheses."""
  parts, depth, begin = [], 0, 0
  for at, letter in enumerate(path):
    depth += (letter == '(') - (letter == ')')
    if letter == '/' and depth == 0:
      parts.append(path[begin:at])
      begin = at + 1
  return [*parts, path[begin:]]


def _unwrap(part):
  """The name inside transformations; '' for what is no module."""
  while found := re.fullmatch(r'(\w+)\((.*)\)', part):
    if found[1] in ('jit', 'pjit', 'checkpoint', 'remat'):
      return ''
    part = found[2]
  return '' if part in WRAPPERS or part.startswith('branch_') else part


class _Raw(NamedTuple):
  """A line of the text, number `number` of its computation."""

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
  def turns(self):
    """How often a loop runs what it calls; 1 where XLA can't tell."""
    known = TURNS.search(self.rest)
    return int(known[1]) if known else 1


class _Reader:
  """Finds whose an operation is."""

  def __init__(self, computations, frames):
    self._computations = computations
    self._frames = frames

  def read(self, raw, around):
    """The Operation of a line, with its computation's lines around it."""
    named = self._named(raw)
    if not named.path:
      read = [around[name] for name in raw.operands if name in around]
      # What was made last is most often what it was made for.
      for other in sorted(read, key=lambda line: -line.number):
        if not named.path and other.opcode != 'parameter':
          named = self._named(other)
    whose = module(named.path, self._frames.module(named.frame))
    return Operation(
      raw.name,
      raw.opcode,
      raw.arrays,
      named.path,
      whose,
      tuple(raw.operands),
      raw.rest,
    )

  def _named(self, raw):
    """The line itself, or the last one fused into it that has a path."""
    if raw.path or raw.opcode in CONTAINERS:
      return raw
    inner = [
      line
      for name in raw.called
      for line in self._computations.get(name, {}).values()
      if line.path and line.opcode != 'parameter'
    ]
    return inner[-1] if inner else raw


def _computations(text):
  """(name of the entry, {computation: {name: _Raw}})."""
  entry, found, now = '', {}, None
  for line in text.splitlines():
    if header := COMPUTATION.match(line):
      now = found[header[2]] = {}
      entry = header[2] if header[1] else entry
    elif now is not None and (match := INSTRUCTION.match(line)):
      now[match[1]] = _raw(len(now), *match.groups())
  return entry, found


def _raw(number, name, shape, opcode, rest):
  path, frame = OP_NAME.search(rest), FRAME.search(rest)
  called = CALLED.findall(rest)
  for names in BRANCHES.findall(rest):
    called += [part.strip().lstrip('%') for part in names.split(',')]
  arrays = []
  for dtype, dimensions in ARRAY.findall(shape):
    sizes = [int(n) for n in dimensions.split(',') if n]
    arrays.append((f'{dtype}[{dimensions}]', array_bytes(dtype, sizes)))
  return _Raw(
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
