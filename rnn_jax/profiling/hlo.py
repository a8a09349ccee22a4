"""The text of a compiled program: its operations, and whose they are.

XLA names each operation of the optimized program and keeps, as `op_name`, the
path that led to it while tracing:

  jit(train)/transpose(jvp(LanguageModel.features))/stack/while/body/.../mul

Without transformations, loops and the primitive at its end, that is the path of
the module: LanguageModel.features/stack, in the backward pass.
"""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

BITS = re.compile(r'^[a-z]+?(\d+)')
COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\{$')
INSTRUCTION = re.compile(
  r'^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$'
)
ARRAY = re.compile(r'\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]')
OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
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
  """

  name: str
  opcode: str
  arrays: tuple[tuple[str, int], ...]
  path: str

  @property
  def module(self) -> str:
    return module(self.path)


class Program:
  """The operations of a program's text.

  Attributes:
    name: of the program (the HLO module).
    operations: all that run by themselves, {name: Operation}; what is fused
      into one of them is not among them.
  """

  def __init__(self, text: str):
    self.name = re.match(r'HloModule ([\w.\-]+)', text)[1]
    entry, computations = _computations(text)
    self.operations = {}
    todo, seen = [entry], set()
    while todo:
      name = todo.pop()
      if name in seen:
        continue
      seen.add(name)
      for operation, called in computations[name]:
        self.operations[operation.name] = _named(
          operation, called, computations
        )
        if operation.opcode in CONTAINERS:
          todo += called

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


def module(path: str) -> str:
  """Returns the module of an `op_name`, '(backward)' or '(again)' behind it."""
  parts = _split(path)[:-1]
  names = [name for part in parts if (name := _unwrap(part))]
  if not names:
    return NOBODY
  suffix = ''
  if 'rematted_computation' in path:
    suffix = ' (again)'
  elif 'transpose(' in path:
    suffix = ' (backward)'
  return '/'.join(names) + suffix


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


def _computations(text):
  """(name of the entry, {computation: [(Operation, computations called)]})."""
  entry, found, now = '', {}, None
  for line in text.splitlines():
    if header := COMPUTATION.match(line):
      now = found[header[2]] = []
      entry = header[2] if header[1] else entry
    elif now is not None and (match := INSTRUCTION.match(line)):
      now.append(_instruction(*match.groups()))
  return entry, found


def _instruction(name, shape, opcode, rest):
  path = OP_NAME.search(rest)
  called = CALLED.findall(rest)
  for names in BRANCHES.findall(rest):
    called += [part.strip().lstrip('%') for part in names.split(',')]
  arrays = []
  for dtype, dimensions in ARRAY.findall(shape):
    sizes = [int(n) for n in dimensions.split(',') if n]
    arrays.append((f'{dtype}[{dimensions}]', array_bytes(dtype, sizes)))
  path = path[1] if path else ''
  return Operation(name, opcode, tuple(arrays), path), called


def _named(operation, called, computations):
  """The operation, with a path of what is fused into it if it has none."""
  if operation.path or operation.opcode in CONTAINERS:
    return operation
  paths = [
    inner.path
    for name in called
    for inner, _ in computations.get(name, ())
    if inner.path
  ]
  return operation._replace(path=paths[-1]) if paths else operation
