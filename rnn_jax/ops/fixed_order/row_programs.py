"""Operations on each row of some arrays as one call of C++.

A program is a list of instructions, which rnn_jax/native/row_programs.cc
carries out for each row, rows on several threads; with products, for some rows
together, which read weights once. An instruction reads and writes numbers at
equal distances, and each number that it makes is rounded once. It writes into
the thread's memory, or where the call's results are.

    instruction   operation, axes, operands, the size of each axis, operands
    operand       array, first number, distance of rows, of each axis's numbers

The first operand is what an instruction makes. Arrays are CONSTANTS, MEMORY,
then the call's inputs and results.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.native import library
from rnn_jax.ops.fixed_order import graph
from rnn_jax.ops.fixed_order import schedule as schedule_lib
from rnn_jax.ops.fixed_order import sums
from rnn_jax.ops.fixed_order import views

# As the library counts them; the functions follow.
OPERATIONS = (
  *('copy', 'add', 'sub', 'mul', 'div', 'max', 'min'),
  *('eq', 'ne', 'lt', 'le', 'gt', 'ge', 'select', 'sqrt', 'abs'),
  *schedule_lib.REDUCTIONS,
  schedule_lib.PRODUCT,
  *schedule_lib.FUNCTIONS,
)
ALIASES = {'add_any': 'add', 'and': 'min', 'or': 'max', 'select_n': 'select'}
SUMS = *schedule_lib.REDUCTIONS, schedule_lib.PRODUCT  # their axes stay
CONSTANTS, MEMORY = 0, 1
LINE = 16  # numbers of a cache line
TOGETHER = 8  # rows of a program with products


class _Memory:
  """Some of a thread's memory."""

  def __init__(self, size: int):
    self.size, self.first, self.last_used = -(-size // LINE) * LINE, -1, -1


class _Operand(NamedTuple):
  """A row's numbers in an array."""

  array: Any  # CONSTANTS, a _Memory, or the Value of an input or a result
  first: int
  by_row: int
  view: np.ndarray


class Result(NamedTuple):
  """An array that a program returns, its rows first.

  Attributes:
    value: what it is.
    row: the axis of the rows in `value`; None: there is one row.
    replaced: the input that it overwrites, or None.
  """

  value: graph.Value
  row: int | None
  replaced: graph.Value | None


class Program:
  """One call.

  Attributes:
    inputs: what it reads.
    results: what it returns.
    made: {what other operations need: the result that has its numbers}.
  """

  def __init__(self, schedule: schedule_lib.Schedule, depth: int) -> None:
    """Writes the program of a depth."""
    self._schedule, self._nodes = schedule, schedule.programs[depth]
    self._computed = {node.result for node in self._nodes}
    self.inputs: list[graph.Value] = []
    self.made: dict[graph.Value, graph.Value] = {}
    self.results = self._find_results(depth)
    self._code: list[tuple[str, tuple[_Operand, ...]]] = []
    self._constants: list[np.float32] = []
    self._memory: dict[graph.Value, _Memory] = {}
    for node in self._nodes:
      self._write(node)
    # What overwrites an input comes when all are read.
    for result in sorted(self.results, key=lambda x: x.replaced is not None):
      self._return(result)

  def run(
    self,
    array: Callable[[graph.Value], Any],
    stored: dict[graph.Value, Any],
  ) -> dict[graph.Value, Any]:
    """Calls it. Returns the arrays that other operations need.

    Args:
      array: returns an array of the graph.
      stored: results of programs as they are returned; its own are added.
    """
    given = [stored[x] if x in stored else array(x) for x in self.inputs]
    aliases = {
      self.inputs.index(x.replaced): n
      for n, x in enumerate(self.results)
      if x.replaced is not None
    }
    shapes = [self._shape(x) for x in self.results]
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    attributes = self._attributes()
    made = library.call(
      'row_program', results, *given, aliases=aliases, **attributes
    )
    rows = {}
    for result, y in zip(self.results, made, strict=True):
      stored[result.value], rows[result.value] = y, result.row
    arrays = {}
    for value, holder in self.made.items():
      y, row = stored[holder], rows[holder]
      y = y if row is None else jnp.moveaxis(y, 0, row)
      y = y.reshape(value.shape)
      arrays[value] = y if value.dtype == jnp.float32 else y != 0
    return arrays

  def _shape(self, result):
    if result.replaced is not None:
      return result.replaced.shape
    shape, row = result.value.shape, result.row
    if row is None:
      return shape
    return shape[row], *shape[:row], *shape[row + 1 :]

  def _find_results(self, depth):
    """Returns the results, and finds what they are needed for."""
    schedule, rows = self._schedule, {}
    for value in schedule.returned[depth]:
      base, view = schedule.place(value)
      if base not in self._computed:  # what it copies of another array
        holder, row = value, 0
      elif views.is_dense(view, schedule.place(base).view):
        holder, row = base, schedule.row[base]
      else:
        holder, row = value, views.row_of(view)
      self.made[value] = holder
      rows[holder] = row if schedule.rows > 1 else None
    free = [x for x in schedule.given if self._is_free(x, depth)]
    results = []
    for value, row in rows.items():
      replaced = None
      is_computed = schedule.place(value).base in self._computed
      if is_computed and row in (0, None):
        alike = [x for x in free if self._is_final(value, x.shape)]
        replaced = alike[0] if alike else None
        free = [x for x in free if x is not replaced]
      results.append(Result(value, row, replaced))
    return results

  def _is_final(self, value, shape):
    """Whether a result of the graph, of a shape, has an array's numbers."""
    results = [x for x in self._schedule.results if x.shape == shape]
    return any(self.made.get(x) is value for x in results)

  def _is_free(self, given, depth):
    """Whether an input may be overwritten: only this program's row reads it."""
    schedule = self._schedule
    if given.dtype != jnp.float32 or schedule.last_read.get(given) != depth:
      return False
    places = (schedule.place(x) for n in self._nodes for x in n.inputs)
    read = [place.view for place in places if place.base is given]
    if schedule.rows == 1:
      return bool(read)
    (own, *_) = schedule.place(given).view.strides
    return bool(read) and all(view.strides[:1] == (own,) for view in read)

  def _write(self, node):
    """Adds the instructions of a node."""
    name, y = node.name, node.result
    base, view = self._schedule.place(y)
    row = self._schedule.row.get(y)
    local = math.prod(self._schedule.local(y))
    if not any(x.value is y and x.replaced is None for x in self.results):
      self._memory[y] = _Memory(local)
    to = self._at(base, view, row)
    if name == 'concatenate':
      axis, begin = node.params['dimension'], 0
      for x in node.inputs:
        end = begin + x.shape[axis]
        part = view[(slice(None),) * axis + (slice(begin, end),)]
        self._add(
          'copy', self._at(base, part, row), self._read(x, x.shape, row)
        )
        begin = end
    elif name in schedule_lib.REDUCTIONS:
      self._reduce(node, to)
    elif name == schedule_lib.PRODUCT:
      self._multiply(node, to)
    else:
      read = [self._read(x, y.shape, row) for x in node.inputs]
      self._elementwise(node, to, read)

  def _elementwise(self, node, y, read):
    name = node.name
    if name == 'neg':
      self._add('sub', y, self._number(-0.0), *read)
    elif name == 'not':
      self._add('sub', y, self._number(1.0), *read)
    elif name == 'rsqrt':
      self._add('sqrt', y, *read)
      self._add('div', y, self._number(1.0), y)
    elif name in ('square', 'integer_pow'):
      self._add('mul', y, *read, *read)
      if node.params.get('y') == 3:
        self._add('mul', y, y, *read)
    elif name in schedule_lib.FUNCTIONS:
      self._add(name, y, self._dense(*read))
    else:
      self._add(ALIASES.get(name, name), y, *read)

  def _reduce(self, node, y):
    (x,), axes = node.inputs, node.params['axes']
    row = self._schedule.row.get(node.result)
    if row is not None:  # its axis in x
      row = [n for n in range(len(x.shape)) if n not in axes][row]
      axes = [n - (n > row) for n in axes]
    read, axes = self._read(x, x.shape, row), sorted(axes)
    first, last = axes[0], axes[-1] + 1
    if last - first > len(axes):  # not next to each other
      kept = [n for n in range(read.view.ndim) if n not in axes]
      read = read._replace(view=read.view.transpose(*kept, *axes))
      first, last = len(kept), read.view.ndim
    shape = read.view.shape
    parts = shape[:first], shape[first:last], shape[last:]
    outer, N, inner = map(math.prod, parts)
    made = views.whole((outer, 1, inner))
    self._add(
      node.name,
      y._replace(view=np.broadcast_to(made, (outer, N, inner))),
      self._dense(read)._replace(view=views.whole((outer, N, inner))),
    )

  def _multiply(self, node, y):
    row, rows = self._schedule.row[node.result], (None, None)
    if row is not None:
      rows = schedule_lib.rows_of_operands(node, row)
    given = [
      self._dense(self._read(x, x.shape, own))
      for x, own in zip(node.inputs, rows, strict=True)
    ]
    numbers = _without(node.params['dimension_numbers'], rows)
    way = sums.product_of(*(x.view.shape for x in given), numbers)
    x, w = given[::-1] if way.swaps else given
    sizes, of_x, of_w = zip(*way.outer, strict=True) if way.outer else [()] * 3
    sizes = (*sizes, way.K, way.F)
    *of_y, _, f = views.whole((*sizes[:-2], 1, way.F)).strides
    k, w_k, w_f = way.apart
    own = y
    if way.swaps:
      whole = views.whole(way.shape)
      own = _Operand(_Memory(whole.size), 0, 0, whole)
    self._add(
      node.name,
      own._replace(view=views.strided(sizes, (*of_y, 0, f))),
      x._replace(view=views.strided(sizes, (*of_x, k, 0))),
      w._replace(view=views.strided(sizes, (*of_w, w_k, w_f))),
    )
    if way.swaps:
      self._add('copy', y, own._replace(view=whole.transpose(*way.order)))

  def _return(self, result):
    """Copies a result that wasn't computed where it is returned."""
    value, row, _ = result
    base, view = self._schedule.place(value)
    if base is value and base not in self._memory:
      return
    read = self._at(base, view, row)
    size = view.size if row is None else view.size // self._schedule.rows
    own = views.whole(read.view.shape)
    self._add('copy', _Operand(value, 0, size, own), read)

  def _read(self, x, shape, row):
    """Returns the operand of what a node reads."""
    base, view = self._schedule.place(x)
    return self._at(base, np.broadcast_to(view, shape), row)

  def _at(self, base, view, row):
    """Returns the operand of a view of an array."""
    schedule = self._schedule
    first = views.offset(view, schedule.place(base).view)
    by_row = 0
    if row is not None:
      by_row, view = view.strides[row], view[(slice(None),) * row + (0, ...)]
    if base.number is not None:
      return self._number(base.number, view.shape)
    if schedule.is_shared(base) and base not in self._memory:
      self._write(base.node)
    if base in schedule.row and row is not None:  # its rows are apart
      by_row = 0 if base in self._memory else math.prod(schedule.local(base))
    if base in self._memory:
      return _Operand(self._memory[base], first, by_row, view)
    if base not in self._computed and base not in self.inputs:
      self.inputs.append(base)
    return _Operand(base, first, by_row, view)

  def _number(self, number, shape=()):
    constant = np.float32(number)
    bits = [x.tobytes() for x in self._constants]
    if constant.tobytes() not in bits:
      self._constants.append(constant)
      bits.append(constant.tobytes())
    first = bits.index(constant.tobytes())
    view = np.broadcast_to(views.whole(()), shape)
    return _Operand(CONSTANTS, first, 0, view)

  def _dense(self, operand):
    """Returns an operand whose numbers lie without gaps, maybe a copy."""
    own = views.whole(operand.view.shape)
    if _axes('', [operand.view]) == _axes('', [own]):
      return operand
    copy = _Operand(_Memory(own.size), 0, 0, own)
    self._add('copy', copy, operand)
    return copy

  def _add(self, name, *operands):
    shape = operands[0].view.shape
    own = [x._replace(view=np.broadcast_to(x.view, shape)) for x in operands]
    for x in own:
      if isinstance(x.array, _Memory):
        x.array.last_used = len(self._code)
    self._code.append((name, tuple(own)))

  def _attributes(self):
    """Returns the attributes of the call."""
    memory, arrays = self._allocate(), {}
    for n, x in enumerate((*self.inputs, *(x.value for x in self.results))):
      arrays[x] = MEMORY + 1 + n
    code, work = [], 0
    for name, operands in self._code:
      sizes, strides = _axes(name, [x.view for x in operands])
      work += math.prod(sizes)
      code += [OPERATIONS.index(name), len(sizes), len(operands), *sizes]
      for x, own in zip(operands, strides, strict=True):
        array, first = x.array, x.first
        if isinstance(array, _Memory):
          array, first = MEMORY, first + array.first
        elif isinstance(array, graph.Value):
          array = arrays[array]
        code += [array, first, x.by_row, *own]
    multiplies = any(name == schedule_lib.PRODUCT for name, _ in self._code)
    bits = np.array([*self._constants, 0], np.float32).view(np.int32)
    return {
      'code': np.array(code, np.int64),
      'constants': bits.astype(np.int64),
      'memory': np.int64(memory),
      'rows': np.int64(self._schedule.rows),
      'work': np.int64(work),
      'together': np.int64(TOGETHER if multiplies else 1),
    }

  def _allocate(self):
    """Places what lies in a thread's memory. Returns its size."""
    size, free = 0, {}
    for n, (_, operands) in enumerate(self._code):
      arrays = (x.array for x in operands)
      used = dict.fromkeys(x for x in arrays if isinstance(x, _Memory))
      for memory in used:
        if memory.first < 0:
          own = free.get(memory.size)
          memory.first = own.pop() if own else size
          size = max(size, memory.first + memory.size)
      for memory in used:
        if memory.last_used == n:
          free.setdefault(memory.size, []).append(memory.first)
    return size


def _without(numbers, rows):
  """Returns a product's dimension numbers without the axes of the rows."""
  summed, batched = numbers
  kept = [n for n, axis in enumerate(batched[0]) if axis != rows[0]]

  def moved(axes, row):
    return [n - (row is not None and n > row) for n in axes]

  return tuple(map(moved, summed, rows)), tuple(
    moved([axes[n] for n in kept], row)
    for axes, row in zip(batched, rows, strict=True)
  )


def _axes(
  name: str, operands: Sequence[np.ndarray]
) -> tuple[list[int], list[list[int]]]:
  """Returns (sizes, strides of each operand) with as few axes as possible."""
  shape = operands[0].shape
  strides = list(zip(*(x.strides for x in operands), strict=True))
  if name in SUMS:
    return [*shape], [[*x.strides] for x in operands]
  sizes: list[int] = []
  kept: list[tuple[int, ...]] = []
  for n, own in zip(shape, strides, strict=True):
    if n == 1:
      continue
    if sizes and all(a == n * b for a, b in zip(kept[-1], own, strict=True)):
      sizes[-1], kept[-1] = sizes[-1] * n, own
    else:
      sizes.append(n)
      kept.append(own)
  if not sizes:
    sizes, kept = [1], [(0,) * len(operands)]
  return sizes, [list(x) for x in zip(*kept, strict=True)]
