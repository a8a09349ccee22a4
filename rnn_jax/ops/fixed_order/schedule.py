"""Which operations of a graph run in one call, row by row.

Arrays whose first axis has `rows` rows are computed one row at a time: all that
lies between two calls of another kind, such as products and recurrences, is one
program (row_programs.py).

    view    a layout of an array's memory (views.py), which takes no time
    row     an operation on the numbers of a row: elementwise, a sum, a join
    shared  one on few numbers that no row changes: programs repeat it
    other   anything else; XLA runs it

An operation's depth is the largest number of others on a way to it. Rows'
operations of one depth are one program, and those that may wait for the next
program do.
"""

import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rnn_jax.ops.fixed_order import graph
from rnn_jax.ops.fixed_order import views

# Numbers of a row from which XLA's kernels are faster: they make one pass over
# the numbers, by several threads.
LARGE = 1 << 14
PER_NUMBER = 4  # products that take as long as another operation
# As the library counts them. XLA's have two forms, for single numbers and for
# vectors, and an array's shape decides which of them computes a number.
FUNCTIONS = (
  ('exp', 'log', 'log1p', 'tanh', 'logistic', 'expm1', 'erf', 'sin', 'cos')
  + ('silu', 'log1p_exp')  # x logistic(x), log1p(exp(x))
)
ELEMENTWISE = {
  *('add', 'add_any', 'sub', 'mul', 'div', 'max', 'min', 'neg', 'abs'),
  *('sqrt', 'rsqrt', 'square', 'integer_pow', 'select_n', 'copy'),
  *('eq', 'ne', 'lt', 'le', 'gt', 'ge', 'and', 'or', 'not'),
  *FUNCTIONS,
}
REDUCTIONS = 'reduce_sum', 'reduce_max'
PRODUCT = 'dot_general'
OTHERS = *REDUCTIONS, PRODUCT, 'concatenate'
OF_MASKS = 'and', 'or', 'not'
POWERS = 2, 3
NUMBERS = jnp.float32, jnp.bool_  # masks are 0 and 1


class Place(NamedTuple):
  """Where an array's numbers lie."""

  base: graph.Value
  view: np.ndarray


def rows_of_operands(
  node: graph.Node, row: int
) -> tuple[int | None, int | None]:
  """Returns the axes of the rows in the operands of a product, None without.

  Args:
    node: the product.
    row: the axis of the rows in its result.
  """
  (x_summed, w_summed), (x_rows, w_rows) = node.params['dimension_numbers']
  x_free, w_free = (
    [n for n in range(len(x.shape)) if n not in {*used}]
    for x, used in zip(
      node.inputs, ((*x_summed, *x_rows), (*w_summed, *w_rows)), strict=True
    )
  )
  if row < len(x_rows):
    return x_rows[row], w_rows[row]
  row -= len(x_rows)
  if row < len(x_free):
    return x_free[row], None
  return None, w_free[row - len(x_free)]


class Demand(NamedTuple):
  """An array that is needed as such, by another operation or as a result."""

  value: graph.Value
  last: int  # the deepest program that may make it


class Schedule:
  """What runs when.

  Attributes:
    rows: of the arrays that programs compute.
    row: {what a program computes: the axis of its rows, or None for one row}.
    level: {the same: the depth of its program}.
    programs: {depth: nodes of the program}, in their order.
    returned: {depth: arrays that other operations need of the program}.
    others: {depth: the other nodes}, which run before the program.
    results: of the graph.
    last_read: {an array: the depth where it is read last}.
  """

  def __init__(
    self,
    nodes: Sequence[graph.Node],
    inputs: Sequence[graph.Value],
    results: Sequence[graph.Value],
    rows: int,
  ) -> None:
    """Plans a graph, of `graph.trace`."""
    self.rows, self.results = rows, results
    self.row: dict[graph.Value, int | None] = {}
    self.level: dict[graph.Value, int] = {}
    self.last_read: dict[graph.Value, int] = {}
    self.given = [x for x in inputs if rows == 1 or x.shape[:1] == (rows,)]
    self._shared: set[graph.Value] = set()
    self._places: dict[graph.Value, Place] = {}
    self._varying = {*self.given}
    self._depths: dict[Any, int] = {}  # of arrays and of nodes
    self._order: list[graph.Node] = []  # all but views and what is shared
    for node in nodes:
      if not self._is_view(node) and not self._is_local(node):
        self._order.append(node)
        depth = self._depths[node] = 1 + self._depth(node)
        varies = any(self.place(x).base in self._varying for x in node.inputs)
        for y in node.outputs:
          self._depths[y] = depth
          if varies:
            self._varying.add(y)
    self._assign()

  def place(self, value: graph.Value) -> Place:
    """Returns where the numbers of an array lie."""
    if value not in self._places:
      self._places[value] = Place(value, views.whole(value.shape))
    return self._places[value]

  def is_shared(self, value: graph.Value) -> bool:
    """Whether programs compute an array by themselves."""
    return value in self._shared

  def local(self, value: graph.Value) -> tuple[int, ...]:
    """Returns the shape of a row of what a program computes."""
    row = self.row.get(value)
    return tuple(n for axis, n in enumerate(value.shape) if axis != row)

  def _can_copy(self, demand):
    """Returns the depth of a program that copies a view of another array.

    None: the view is the array itself, or it is left to XLA, as no program of
    such a depth runs anyway.
    """
    base, view = self.place(demand.value)
    if base.dtype != jnp.float32 or base not in self._varying:
      return None
    if views.is_dense(view, self.place(base).view):
      return None
    if self._size(demand.value.shape, 0) > LARGE:
      return None
    if demand.value.shape[:1] != (self.rows,):
      return None
    first = self._depths.get(base, 0)
    depths = [n for n in self.programs if first <= n <= demand.last]
    return min(depths, default=None)

  def _depth(self, node):
    bases = (self.place(x).base for x in node.inputs)
    return max((self._depths.get(base, 0) for base in bases), default=0)

  def _size(self, shape, row):
    size = math.prod(shape)
    return size if row is None else size // self.rows

  def _is_view(self, node):
    """Whether a node only has another layout; then it has its places."""
    if not node.inputs or not node.outputs:
      return False
    base, view = self.place(node.inputs[0])
    try:
      made = views.through(node, view)
    except ValueError:
      base, made = self._copied(node)
    if made is None:
      return False
    if self.row.get(base) is not None and not all(map(self._has_rows, made)):
      return False
    for y, own in zip(node.outputs, made, strict=True):
      self._places[y] = Place(base, own)
    return True

  def _has_rows(self, view):
    row = views.row_of(view)
    return row is not None and view.shape[row] == self.rows

  def _copied(self, node):
    """Returns a copy that programs make of what a node reads, and its views.

    (None, None): they can't make one, or it doesn't have such views.
    """
    (x,), copy = node.inputs, graph.Node('copy', None, {}, node.inputs)
    copy.outputs = [graph.Value(x.shape, x.dtype, None, copy)]
    if not self._is_local(copy):
      return None, None
    base, view = self.place(copy.result)
    try:
      return base, views.through(node, view)
    except ValueError:
      if self.row.pop(base, self) is not self:
        self._order.pop()
      return None, None

  def _is_local(self, node):
    """Whether programs compute a node; then it has its place."""
    if not self._is_known(node):
      return False
    y, bases = node.result, [self.place(x).base for x in node.inputs]
    row, work = None, self._work(node)
    if not any(base in self._varying for base in bases):
      if work > LARGE or node.name == PRODUCT:
        return False
      self._shared.add(y)
    else:
      if self.rows > 1:
        row = self._row_of(node)
        if row is None:
          return False
      if work > LARGE * self.rows:
        return False
      self.row[y] = row
      self._varying.add(y)
      self._order.append(node)
    self._places[y] = Place(y, views.whole(y.shape, row))
    self._depths[y] = self._depths[node] = self._depth(node)
    return True

  def _is_known(self, node):
    """Whether programs have an operation, and can read what it reads."""
    name, inputs = node.name, node.inputs
    if name not in ELEMENTWISE and name not in OTHERS:
      return False
    y, is_plain = node.result, True
    if name == 'integer_pow':
      is_plain = node.params['y'] in POWERS
    elif name == 'select_n':
      is_plain = len(inputs) == 3 and inputs[0].dtype == jnp.bool_
    elif name == PRODUCT:
      (summed, _), _ = node.params['dimension_numbers']
      is_plain = len(summed) == 1 and y.dtype == jnp.float32
    elif name in OF_MASKS:
      is_plain = y.dtype == jnp.bool_
    arrays = [x for x in (y, *inputs) if x.dtype in NUMBERS and x.size]
    is_plain &= len(arrays) == 1 + len(inputs)
    return is_plain and all(map(self._is_readable, inputs))

  def _is_readable(self, value):
    base = self.place(value).base
    if base.number is not None or base in self.row or base in self._shared:
      return True
    return base.dtype == jnp.float32

  def _work(self, node):
    """Returns how many numbers a node computes with, in all rows."""
    work = max(math.prod(x.shape) for x in (node.result, *node.inputs))
    if node.name == PRODUCT:
      (summed, _), _ = node.params['dimension_numbers']
      work = math.prod((*node.result.shape, node.inputs[0].shape[summed[0]]))
      work //= PER_NUMBER
    return work

  def _row_of(self, node):
    """Returns the axis of the rows in what a node makes, None without one."""
    if node.name == PRODUCT:
      return self._row_of_product(node)
    places = [self.place(x) for x in node.inputs]
    found = {
      views.row_of(place.view) for place in places if place.base in self.row
    }
    if len(found) > 1 or None in found:
      return None
    (row,) = found or {0}
    if node.name in REDUCTIONS:
      shape, axes = node.inputs[0].shape, node.params['axes']
    else:
      shape, axes = node.result.shape, ()
      if node.name == 'concatenate':
        axes = (node.params['dimension'],)
    if row >= len(shape) or shape[row] != self.rows or row in axes:
      return None
    before = sum(axis < row for axis in axes)
    return row - before * (node.name in REDUCTIONS)

  def _row_of_product(self, node):
    wanted = []
    for base, view in map(self.place, node.inputs):
      of_rows = views.row_of(view) if base in self.row else 0
      wanted.append(of_rows if base in self._varying else None)
    for row, size in enumerate(node.result.shape):
      if size != self.rows:
        continue
      found = rows_of_operands(node, row)
      pairs = zip(wanted, found, strict=True)
      if all(one is None or one == other for one, other in pairs):
        return row
    return None

  def _assign(self):
    """Finds the program of each node that is computed by rows."""
    last = max((self._depths[node] for node in self._order), default=0)
    latest = dict.fromkeys(self.row, last)
    self._demands = [Demand(x, last) for x in self.results]
    for node in reversed(self._order):
      is_row = self._is_row(node)
      limit = latest[node.result] if is_row else self._depths[node] - 1
      for x in node.inputs:
        base = self.place(x).base
        if base in self.row:
          latest[base] = min(latest[base], limit)
        if not is_row:
          self._demands.append(Demand(x, limit))
    depths = {base: self._depths[base] for base in self.row}
    wanted = {depths[base] for base in self.row if depths[base] == latest[base]}
    self.programs: dict[int, list[graph.Node]] = {}
    self.others: dict[int, list[graph.Node]] = {}
    for node in self._order:
      if not self._is_row(node):
        self.others.setdefault(self._depths[node], []).append(node)
        continue
      y = node.result
      bases = [self.place(x).base for x in node.inputs]
      first = max([depths[y], *(self.level.get(base, 0) for base in bases)])
      suited = [n for n in wanted if first <= n <= latest[y]]
      self.level[y] = min(suited, default=first)
      wanted.add(self.level[y])
      self.programs.setdefault(self.level[y], []).append(node)
    self._find_reads()
    self._find_returned()

  def _is_row(self, node):
    return bool(node.outputs) and node.result in self.row

  def _find_reads(self):
    for node in self._order:
      is_row = self._is_row(node)
      depth = self.level[node.result] if is_row else self._depths[node]
      for x in node.inputs:
        base: Any = self.place(x).base
        self.last_read[base] = max(depth, self.last_read.get(base, 0))
    for x in self.results:
      self.last_read[self.place(x).base] = len(self._order) + 1

  def _find_returned(self):
    # Sets in order, so that a program is the same in every process.
    found: dict[int, dict[graph.Value, None]] = {n: {} for n in self.programs}
    for depth, nodes in self.programs.items():
      for x in [x for node in nodes for x in node.inputs]:
        base = self.place(x).base
        if self.level.get(base, depth) != depth:
          found[self.level[base]][base] = None
    for demand in self._demands:
      base = self.place(demand.value).base
      depth = self.level[base] if base in self.row else self._can_copy(demand)
      if depth is not None:
        found[depth][demand.value] = None
    self.returned = {depth: [*own] for depth, own in found.items()}
