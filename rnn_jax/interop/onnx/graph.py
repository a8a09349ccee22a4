"""A graph of ONNX nodes while it is built.

Sizes that are only known at run time are jax's symbolic dimensions, such as
`B`, `L` or `4*L + 3`: `dim` and `shape` give them as int64 tensors. A graph
inside another, the body of a loop, sees all names of those around it. Names are
numbered in the order of their nodes, so a model always gives the same file.
"""

import ast
import itertools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import onnx

# uint32 is int64 here: few operators have a kernel for it (rules/elementwise).
TYPES = {
  'float32': onnx.TensorProto.FLOAT,
  'int32': onnx.TensorProto.INT32,
  'uint32': onnx.TensorProto.INT64,
  'int64': onnx.TensorProto.INT64,
  'int8': onnx.TensorProto.INT8,
  'uint8': onnx.TensorProto.UINT8,
  'bool': onnx.TensorProto.BOOL,
}
_ARITHMETIC = {ast.Add: 'Add', ast.Sub: 'Sub', ast.Mult: 'Mul'}
_FUNCTIONS = {'floordiv': 'Div', 'mod': 'Mod', 'max': 'Max', 'min': 'Min'}

Shape = tuple[Any, ...]  # of ints and symbolic dimensions


class Value(NamedTuple):
  """A tensor of a graph.

  Most operators of ONNX broadcast, so jax's broadcasts aren't nodes until a
  node needs the whole tensor (`Graph.whole`).

  Attributes:
    name: of the tensor.
    stored: its shape: that of `shape` with some 1s, or () of one number.
    shape: what it stands for.
    dtype: of jax.
  """

  name: str
  stored: Shape
  shape: Shape
  dtype: np.dtype


class Graph:
  """Nodes in order.

  Attributes:
    nodes: the nodes so far.
    constants: initializers; only the outermost graph has them.
  """

  def __init__(self, outer: 'Graph | None' = None) -> None:
    self.nodes: list[onnx.NodeProto] = []
    self.constants: dict[str, onnx.TensorProto] = {}
    self._outer = outer
    self._root: Graph = outer._root if outer else self
    self._counter: Iterator[int] = (
      outer._counter if outer else itertools.count()
    )
    self._known: dict[tuple, str] = {}  # constants, of the outermost graph
    self._sizes: dict[str, str] = {}  # of symbolic dimensions
    self._rows: dict[str, tuple[str, str]] = {}  # of the outermost graph
    self._made: set[str] = set()

  def fresh(self, hint: str) -> str:
    """Returns a name that no other tensor has."""
    return f'{hint.lower()}_{next(self._counter)}'

  def nodes_of(
    self,
    operator_type: str,
    inputs: Sequence[str],
    count: int,
    **attributes: Any,
  ) -> list[str]:
    """Adds a node. Returns the names of its outputs."""
    outputs = [self.fresh(operator_type) for _ in range(count)]
    node = onnx.helper.make_node(operator_type, inputs, outputs)
    for key, value in sorted(attributes.items()):
      node.attribute.append(onnx.helper.make_attribute(key, value))
    self.nodes.append(node)
    self._made.update(outputs)
    return outputs

  def node(self, operator_type: str, *inputs: str, **attributes: Any) -> str:
    """Adds a node with one output. Returns its name."""
    return self.nodes_of(operator_type, inputs, 1, **attributes)[0]

  def has_made(self, name: str) -> bool:
    """Whether a tensor is an output of a node of this graph."""
    return name in self._made

  def constant(self, value: Any, dtype: Any = None) -> str:
    """Returns the name of a constant tensor."""
    root, x = self._root, np.asarray(value, dtype)
    if x.dtype == np.uint32:
      x = x.astype(np.int64)
    key = x.dtype.name, x.shape, x.tobytes()
    if key not in root._known:
      name = root._known[key] = self.fresh('constant')
      root.constants[name] = onnx.numpy_helper.from_array(x, name)
    return root._known[key]

  def ints(self, *numbers: int) -> str:
    """Returns the name of a constant vector of int64."""
    return self.constant(numbers, np.int64)

  def cast(self, name: str, dtype: Any) -> str:
    """Returns a tensor in another dtype."""
    return self.node('Cast', name, to=TYPES[np.dtype(dtype).name])

  def build(
    self,
    name: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
  ) -> onnx.GraphProto:
    """Returns the graph, with the nodes and constants that its outputs need."""
    needed, nodes = {output.name for output in outputs}, []
    for node in reversed(self.nodes):
      if needed.intersection(node.output):
        nodes.append(node)
        needed.update(_read([node]))
    constants = [x for key, x in self.constants.items() if key in needed]
    return onnx.helper.make_graph(nodes[::-1], name, inputs, outputs, constants)

  # Tables of rows in 8 bits, of which a few rows are read.

  def pack_rows(self, name: str, numbers: str, scale: str) -> None:
    """Lets a tensor's rows be read from 8-bit numbers and scales of rows."""
    self._root._rows[name] = numbers, scale

  def rows(self, name: str, indices: str) -> str:
    """Returns the rows of a tensor at indices."""
    if name not in self._root._rows:
      return self.node('Gather', name, indices, axis=0)
    numbers, scale = (
      self.node('Gather', each, indices, axis=0)
      for each in self._root._rows[name]
    )
    scale = self.unsqueeze(scale, [-1])
    return self.node('Mul', self.cast(numbers, np.float32), scale)

  # Sizes.

  def define_dim(self, symbol: str, name: str, axis: int) -> None:
    """Lets a symbolic dimension be an axis of a tensor."""
    self._sizes[symbol] = self.node('Shape', name, start=axis, end=axis + 1)

  def dim(self, size: Any) -> str:
    """Returns a size as a vector of one int64."""
    if is_static(size):
      return self.ints(int(size))
    text = str(size)
    if (known := self._find_size(text)) is None:
      expression = ast.parse(text, mode='eval').body
      known = self._sizes[text] = self._evaluate(expression)
    return known

  def _find_size(self, text):
    graph: Graph | None = self
    while graph is not None:
      if text in graph._sizes:
        return graph._sizes[text]
      graph = graph._outer
    return None

  def _evaluate(self, tree):
    if isinstance(tree, ast.Constant):
      return self.ints(tree.value)
    if isinstance(tree, ast.Name):
      name = self._find_size(tree.id)
      assert name is not None, tree.id
      return name
    if isinstance(tree, ast.UnaryOp):
      return self.node('Neg', self._evaluate(tree.operand))
    if isinstance(tree, ast.Call):
      assert isinstance(tree.func, ast.Name)
      arguments = [self._evaluate(each) for each in tree.args]
      return self.node(_FUNCTIONS[tree.func.id], *arguments)
    assert isinstance(tree, ast.BinOp), ast.dump(tree)
    if isinstance(tree.op, ast.Pow):
      assert isinstance(tree.right, ast.Constant)
      return self._power(self._evaluate(tree.left), tree.right.value)
    both = self._evaluate(tree.left), self._evaluate(tree.right)
    return self.node(_ARITHMETIC[type(tree.op)], *both)

  def _power(self, name, exponent):
    result = name
    for _ in range(exponent - 1):
      result = self.node('Mul', result, name)
    return result

  def shape(self, shape: Shape) -> str:
    """Returns a shape as a vector of int64."""
    if all(map(is_static, shape)):
      return self.ints(*map(int, shape))
    return self.node('Concat', *map(self.dim, shape), axis=0)

  # Values.

  def whole(self, value: Value) -> str:
    """Returns the name of a tensor of the value's full shape."""
    if value.stored == value.shape:
      return value.name
    return self.node('Expand', value.name, self.shape(value.shape))

  def reshape(self, name: str, old: Shape, new: Shape) -> str:
    """Returns a tensor in another shape."""
    if old == new:
      return name
    # 0 keeps the size of that axis, -1 is what remains.
    target = [
      int(size)
      if is_static(size) and size != 0
      else 0
      if axis < len(old) and old[axis] == size
      else None
      for axis, size in enumerate(new)
    ]
    if target.count(None) <= 1 and 0 not in map(_static_or_one, old):
      target = [-1 if size is None else size for size in target]
      return self.node('Reshape', name, self.ints(*target))
    return self.node('Reshape', name, self.shape(new))

  def transpose(self, name: str, order: Sequence[int]) -> str:
    """Returns a tensor with its axes in another order."""
    if [*order] == [*range(len(order))]:
      return name
    return self.node('Transpose', name, perm=[*map(int, order)])

  def squeeze(self, name: str, axes: Sequence[int]) -> str:
    """Returns a tensor without axes of size 1."""
    return self.node('Squeeze', name, self.ints(*axes)) if axes else name

  def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
    """Returns a tensor with new axes of size 1, at these places."""
    return self.node('Unsqueeze', name, self.ints(*axes)) if axes else name


def is_static(size: Any) -> bool:
  """Returns whether a size is a number."""
  return isinstance(size, (int, np.integer))


def _read(nodes):
  """Yields the names of tensors that nodes read."""
  for node in nodes:
    yield from node.input
    for attribute in node.attribute:
      yield from _read(attribute.g.node)
      yield from (output.name for output in attribute.g.output)


def _static_or_one(size):
  return int(size) if is_static(size) else 1


def info(name: str, shape: Shape, dtype: Any) -> onnx.ValueInfoProto:
  """Returns the type of an input or output; symbolic sizes by their name."""
  sizes = [int(size) if is_static(size) else str(size) for size in shape]
  return onnx.helper.make_tensor_value_info(
    name, TYPES[np.dtype(dtype).name], sizes
  )
