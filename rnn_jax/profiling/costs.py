"""What each kernel of a compiled program reads, writes and computes, at least.

    bytes       the operands, each read once, and the results, written once
    products    operations of its matmuls, by the format of the factors: 2 M K N
    arithmetic  of elementwise operations, in instructions: one for each number
                of a result, SLOW for one that takes the special function units

Of an operand of which a kernel reads only slices or rows, only these count; of
a result that is an update of an operand, in place, only the update does. So a
loop over stacked layers reads a layer at a time. What stays in a cache between
two kernels counts twice, and the working space of a library not at all.

The loops of a program run as often as it says, or once if it doesn't. Kernels
of Pallas have no operations in its text: pallas_costs.py has them. Softmax
attention by cuDNN has two products of queries, keys and values forward, five
backward, half of them if it is causal.

Special functions run at an eighth of the rate of others: CUDA C++ Programming
Guide, arithmetic instructions, compute capabilities 8.0 and 9.0.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from collections.abc import Mapping

from rnn_jax.profiling import hlo

SLOW = 8
SPECIAL = {  # by XLA's names and by jax's
  *('atan2', 'cbrt', 'cosine', 'cos', 'divide', 'div', 'erf', 'erf_inv'),
  *('exponential', 'exponential-minus-one', 'exp', 'exp2', 'expm1'),
  *('log', 'log-plus-one', 'log1p', 'logistic', 'power', 'pow', 'rsqrt'),
  *('sine', 'sin', 'sqrt', 'tan', 'tanh'),
}
MOVING = {  # what only copies numbers, whatever its name
  *('bitcast', 'bitcast-convert', 'broadcast', 'concatenate', 'constant'),
  *('convert', 'copy', 'dynamic-slice', 'dynamic-update-slice', 'fusion'),
  *('gather', 'get-tuple-element', 'iota', 'pad', 'parameter', 'reshape'),
  *('reverse', 'slice', 'transpose', 'tuple'),
}
REDUCING = {'reduce', 'reduce-window', 'reduce_sum', 'reduce_max', 'cumsum'}
PRODUCTS = {'dot', 'convolution'}
# Of a dot, and of a call of cuBLAS, whose form is JSON.
CONTRACTED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions": ?\[)([\d, "]*)')
EXACT = re.compile(r'operand_precision(?:=\{|": ?\[")highest|f32_f32_f32', re.I)
TARGET = re.compile(r'custom_call_target="([^"]*)"')
ATTENTION = '__cudnn$fmha'
SCORES = re.compile(
  r'"intermediate_tensor_shape": ?\{.*?"dimensions": ?\[([^]]*)'
)
FORMATS = {
  'f32': 'tf32',  # unless the program asks for more
  'bf16': 'bfloat16',
  'f16': 'float16',
  's8': 'int8',
  'f8e4m3fn': 'float8_e4m3fn',
  'f8e5m2': 'float8_e4m3fn',
}
RENAMED = {'bitcast', 'reshape'}
PARTLY = {'dynamic-slice', 'gather', 'slice'}
UPDATES = {'dynamic-update-slice': 1, 'scatter': 2}  # which operand they write
LIBRARIES = '__cublas', '__cudnn'
# A kernel's results, as in XLA's text.
Kernels = Mapping[tuple[str, ...], 'Cost']


@dataclasses.dataclass(frozen=True)
class Cost:
  """What something costs at least; see the module's docstring."""

  bytes: float = 0.0
  products: Mapping[str, float] = dataclasses.field(default_factory=dict)
  arithmetic: float = 0.0

  def __add__(self, other: 'Cost') -> 'Cost':
    products = collections.Counter(self.products)
    products.update(other.products)
    return Cost(
      self.bytes + other.bytes,
      dict(products),
      self.arithmetic + other.arithmetic,
    )

  def times(self, number: float) -> 'Cost':
    """Returns the cost of so many of them."""
    products = {name: number * n for name, n in self.products.items()}
    return Cost(number * self.bytes, products, number * self.arithmetic)

  @property
  def flops(self) -> float:
    """Operations of matmuls of all formats."""
    return sum(self.products.values())


NOTHING = Cost()


def of(program: hlo.Program, name: str, kernels: Kernels | None = None) -> Cost:
  """Returns the Cost of an operation, each time that it runs.

  Args:
    program: as it was compiled.
    name: of the operation; one that runs others costs what they do.
    kernels: of pallas_costs.of, for those that XLA didn't make.
  """
  body = program.computations[program.homes[name]]
  return _cost(program, body[name], body, kernels or {})


def _cost(program, line, body, kernels):
  if line.opcode in hlo.CONTAINERS:
    each = [
      _cost(program, inner, called, kernels)
      for called in map(program.computations.get, line.called)
      for inner in (called or {}).values()
    ]
    return sum(each, NOTHING).times(line.iterations)
  waits = line.opcode.endswith(('-start', '-done'))
  if waits or line.opcode in hlo.NO_RESULT or line.opcode == 'constant':
    return NOTHING
  made = NOTHING
  if line.opcode == 'custom-call':
    results = tuple(sorted(shape for shape, _ in line.arrays))
    made = kernels.get(results, NOTHING)
  counted = Cost(
    _traffic(program, line, body),
    _products(program, line, body),
    _arithmetic(program, line, body),
  )
  return counted + made


def only_moves(program: hlo.Program, name: str) -> bool:
  """Returns whether an operation only copies, casts or rearranges numbers."""
  line = program.computations[program.homes[name]][name]
  if line.opcode != 'fusion':
    return line.opcode in MOVING
  return all(inner.opcode in MOVING for inner in _fused(program, line))


def _fused(program, line) -> Iterator[hlo.Line]:
  """Yields all lines that are fused into one."""
  for name in line.called if line.opcode == 'fusion' else ():
    for inner in program.computations.get(name, {}).values():
      yield inner
      yield from _fused(program, inner)


def _traffic(program, line, body):
  """Returns the bytes of memory that a kernel reads and writes."""
  operands = [body.get(name) for name in line.operands]
  inner = program.computations.get((*line.called, '')[0])
  if line.opcode == 'fusion' and inner:
    return _read_of(inner, operands) + _written(line, inner)
  if line.opcode in PARTLY:
    indices = sum(map(_size, filter(None, operands[1:])))
    return 2 * _size(line) + (indices if line.opcode == 'gather' else 0)
  if line.opcode in UPDATES:
    return 2 * _size(operands[UPDATES[line.opcode]])
  results = _size(line)
  called = TARGET.search(line.rest)
  if called and called[1].startswith(LIBRARIES) and len(line.arrays) > 1:
    results -= _working_space(line)
  return results + sum(map(_size, filter(None, operands)))


def _working_space(line):
  """Returns the bytes of a library's working space: its last, flat result."""
  shape, size = line.arrays[-1]
  return size if re.fullmatch(r'[su]8\[\d*\]', shape) else 0


def _read_of(inner, operands):
  """Returns the bytes that a fusion reads of its operands."""
  users = collections.defaultdict(list)
  for line in inner.values():
    for place, name in enumerate(line.operands):
      users[name].append((place, line))
  total = 0
  for line in inner.values():
    if line.opcode != 'parameter':
      continue
    number = int(re.match(r'\d+', line.rest)[0])
    if number >= len(operands) or not operands[number]:
      continue
    whole = _size(operands[number])
    total += min(whole, sum(_reads(line, users, whole)))
  return total


def _reads(line, users, whole):
  """Yields the bytes that each user of a fusion's parameter reads of it."""
  for place, user in users[line.name]:
    if user.opcode in RENAMED:
      yield from _reads(user, users, whole)
    elif place == 0 and user.opcode in PARTLY:
      yield _size(user)
    elif place == 0 and user.opcode in UPDATES:
      yield 0
    else:
      yield whole


def _written(line, inner):
  """Returns the bytes that a fusion writes; its root is its last line."""
  root = [*inner.values()][-1]
  parts = [(root, _size(line))]
  if root.opcode == 'tuple':
    sizes = (size for _, size in line.arrays)
    parts = [*zip(map(inner.get, root.operands), sizes, strict=True)]
  total = 0
  for made, size in parts:
    part = made
    while part and part.opcode in RENAMED and part.operands[0] in inner:
      part = inner[part.operands[0]]
    place = UPDATES.get(part.opcode) if part else None
    if place is None:
      total += size
    else:  # a sum of rows reads them as well
      update = _size(inner[part.operands[place]])
      total += update * (1 + (part.opcode == 'scatter'))
  return total


def _size(line):
  return sum(size for _, size in line.arrays)


def _products(program, line, body):
  """Returns the operations of matmuls by format."""
  total = collections.Counter()
  called = TARGET.search(line.rest) if line.opcode == 'custom-call' else None
  if called and called[1].startswith(ATTENTION):
    return _attention(line, body, called[1])
  if contracted := CONTRACTED.search(line.rest):
    left = body[line.operands[0]]
    shape = hlo.dimensions(left)
    axes = map(int, re.findall(r'\d+', contracted[1]))
    summed = [shape[axis] for axis in axes]
    total[_format(left, line)] += 2 * math.prod(hlo.dimensions(line) + summed)
  if line.opcode == 'fusion':
    for name in line.called:
      inner = program.computations.get(name, {})
      for each in inner.values():
        total.update(_products(program, each, inner))
  return dict(total)


def _format(factor, line):
  dtype = factor.arrays[0][0].partition('[')[0]
  if dtype == 'f32' and EXACT.search(line.rest):
    return 'float32'
  return FORMATS.get(dtype, 'float32')


def _attention(line, body, called):
  """Returns the operations of cuDNN's attention."""
  found = SCORES.search(line.rest)
  if not found:
    return {}
  scores = math.prod(int(n) for n in re.findall(r'\d+', found[1]))
  queries = body[line.operands[0]]
  count = 5 if 'Backward' in called else 2
  causal = 'CAUSAL' in line.rest
  number = count * 2 * scores * hlo.dimensions(queries)[-1] / (1 + causal)
  return {_format(queries, line): number}


def _arithmetic(program, line, body):
  """Returns the instructions of elementwise operations."""
  if line.opcode == 'fusion':
    return sum(
      _arithmetic(program, inner, program.computations[name])
      for name in line.called
      for inner in program.computations.get(name, {}).values()
    )
  if line.opcode in MOVING | PRODUCTS | {'custom-call'} or not line.arrays:
    return 0
  if line.opcode in REDUCING:
    line = body.get(line.operands[0], line) if line.operands else line
    return math.prod(hlo.dimensions(line))
  slow = SLOW if line.opcode in SPECIAL else 1
  return slow * math.prod(hlo.dimensions(line))
