"""Matrix products: batch axes first, then one row and one column axis each."""


def _dot_general(context, equation, values):
  graph = context.graph
  (left, right), aval = values, equation.outvars[0].aval
  (summed, batch) = equation.params['dimension_numbers']
  a, a_free = _arranged(graph, left, batch[0], summed[0], True)
  b, b_free = _arranged(graph, right, batch[1], summed[1], False)
  name = graph.node('MatMul', a, b)
  sizes = [left.shape[axis] for axis in batch[0]]
  rows = [left.shape[axis] for axis in a_free]
  columns = [right.shape[axis] for axis in b_free]
  if _is_flat(left, batch[0], summed[0], a_free, b_free):
    return [context.value(name, aval)]
  if (len(rows), len(columns)) == (0, 1):
    name = graph.squeeze(name, [len(sizes)])
  elif (len(rows), len(columns)) == (1, 0):
    name = graph.squeeze(name, [len(sizes) + 1])
  elif len(rows) != 1 or len(columns) != 1:
    name = graph.node('Reshape', name, graph.shape(aval.shape))
  return [context.value(name, aval)]


def _is_flat(value, batch, summed, free, other_free):
  """Whether a product of all rows needs no other shape: x W."""
  last = len(value.shape) - 1
  return (
    not batch and tuple(summed) == (last,) and free and len(other_free) == 1
  )


def _arranged(graph, value, batch, summed, is_left):
  """Returns (a tensor of batch axes, rows and columns, its free axes)."""
  rank = len(value.shape)
  free = [n for n in range(rank) if n not in (*batch, *summed)]
  name = graph.whole(value)
  order = [*batch, *free, *summed] if is_left else [*batch, *summed, *free]
  name = graph.transpose(name, order)
  if is_left and not batch and len(summed) == 1 and free:
    return name, free  # any number of rows
  old = tuple(value.shape[n] for n in order)
  if len(free) == len(summed) == 1:
    return name, free
  if not free and len(summed) == 1:
    place = len(batch) + (0 if is_left else 1)
    return graph.unsqueeze(name, [place]), free
  sizes = tuple(value.shape[n] for n in batch)
  parts = [_product(value.shape, free), _product(value.shape, summed)]
  parts = parts if is_left else parts[::-1]
  return graph.reshape(name, old, (*sizes, *parts)), free


def _product(shape, axes):
  size = 1
  for axis in axes:
    size = size * shape[axis]
  return size


RULES = {'dot_general': _dot_general}
