"""Where the numbers of an array lie in the memory of another: NumPy's views.

A view is a NumPy array of bytes whose strides count numbers; its own memory
is never read. Reshapes, slices, transposes and broadcasts then are NumPy's.

The rows of a program's arrays (row_programs.py) are apart: their axis has the
stride ROW, which no other has and which can't be merged with another axis.
"""

import itertools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from rnn_jax.ops.fixed_order import graph

ROW = 1 << 40
SAME = 'name', 'copy', 'copy_p'  # return what they are given


def whole(shape: Sequence[int], row: int | None = None) -> np.ndarray:
  """Returns the view of an array itself, in the order of its axes.

  Args:
    shape: of the array.
    row: the axis of the rows; None: they aren't apart.
  """
  local = [1 if axis == row else n for axis, n in enumerate(shape)]
  strides = [math.prod(local[axis + 1 :]) for axis in range(len(local))]
  if row is not None:
    strides[row] = ROW
  return strided(shape, strides)


def strided(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
  """Returns a view from the distances of neighbours along each axis."""
  memory = np.empty(1, np.int8)
  return np.lib.stride_tricks.as_strided(memory, shape, strides)


def offset(view: np.ndarray, of: np.ndarray) -> int:
  """Returns how many numbers after the start of `of` a view of it starts."""
  first, start = (x.__array_interface__['data'][0] for x in (view, of))
  return first - start


def row_of(view: np.ndarray) -> int | None:
  """Returns the axis of the rows, None if there isn't one."""
  rows = [n for n, stride in enumerate(view.strides) if stride == ROW]
  return rows[0] if len(rows) == 1 else None


def is_dense(view: np.ndarray, of: np.ndarray) -> bool:
  """Whether a view has all numbers of `of`, in their order."""
  axes, others = _axes(view), _axes(whole(view.shape, row_of(view)))
  alike = view.size == of.size and not offset(view, of) and axes == others
  return alike and _rank(axes) == _rank(_axes(of))


def _axes(view):
  pairs = zip(view.shape, view.strides, strict=True)
  return [pair for pair in pairs if pair[0] > 1]


def _rank(axes):
  """Returns how many axes come before that of the rows."""
  strides = [stride for _, stride in axes]
  return strides.index(ROW) if ROW in strides else None


def through(node: graph.Node, view: np.ndarray) -> list[np.ndarray] | None:
  """Returns the views that an operation on the layout makes of a view.

  None: the operation is of another kind.

  Raises:
    ValueError: the result isn't a view.
  """
  if _keeps(node):
    return [view]
  run = LAYOUTS.get(node.name)
  if run is None or len(node.inputs) > 1:  # sizes that aren't known
    return None
  return run(node, view)


def _reshaped(node, view):
  return [np.reshape(view, node.result.shape, copy=False)]


def _broadcast(node, view):
  shape, axes = node.result.shape, node.params['broadcast_dimensions']
  own = dict(zip(axes, view.shape, strict=True))
  inner = [own.get(axis, 1) for axis in range(len(shape))]
  return [np.broadcast_to(np.reshape(view, inner, copy=False), shape)]


def _transposed(node, view):
  return [np.transpose(view, node.params['permutation'])]


def _reversed(node, view):
  return [np.flip(view, node.params['dimensions'])]


def _sliced(node, view):
  params = node.params
  steps = params['strides'] or [1] * view.ndim
  limits = params['start_indices'], params['limit_indices'], steps
  return [view[tuple(map(slice, *limits))]]


def _split(node, view):
  ends = itertools.accumulate(node.params['sizes'])
  return np.split(view, [*ends][:-1], node.params['axis'])


LAYOUTS: dict[str, Callable[[graph.Node, np.ndarray], list[np.ndarray]]] = {
  'reshape': _reshaped,
  'squeeze': _reshaped,
  'broadcast_in_dim': _broadcast,
  'transpose': _transposed,
  'rev': _reversed,
  'slice': _sliced,
  'split': _split,
}


def _keeps(node: graph.Node) -> bool:
  """Whether an operation leaves all numbers as they are."""
  if node.name in SAME:
    return True
  x, y = node.inputs[0], node.result
  if y.dtype != jnp.float32:
    return False
  if node.name == 'convert_element_type':
    return x.dtype in (jnp.float32, jnp.bool_)
  return node.name == 'sub' and x.shape == y.shape and _is_zero(node.inputs[1])


def _is_zero(x: graph.Value) -> bool:
  """Whether an array is 0 everywhere; x - 0 is x, whatever x is."""
  while x.node is not None and x.node.name == 'broadcast_in_dim':
    x = x.node.inputs[0]
  number: Any = x.number
  return number is not None and number == 0 and not np.signbit(number)
