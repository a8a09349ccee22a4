"""Reading and writing at indices.

jax's gather and scatter are general; the forms that models have are one slice
at an index, rows of a table, and an index of its own for each row of a batch.
"""

import numpy as np

from rnn_jax import errors


def _gather(context, equation, values):
  data, indices = values
  numbers = equation.params['dimension_numbers']
  if len(indices.shape) == 1 and not numbers.operand_batching_dims:
    return _take_slice(context, equation, data, indices, numbers)
  axes = numbers.start_index_map
  if len(axes) == 1 and tuple(numbers.collapsed_slice_dims) == tuple(axes):
    if numbers.operand_batching_dims:
      return _take_along(context, equation, data, indices, numbers)
    return _take_rows(context, equation, data, indices, numbers)
  raise _unknown('gather', numbers)


def _take_slice(context, equation, data, indices, numbers):
  """x[..., i : i + n, ...] and x[..., i, ...]."""
  graph, aval = context.graph, equation.outvars[0].aval
  sizes = equation.params['slice_sizes']
  axes = numbers.start_index_map
  begin = graph.cast(graph.whole(indices), np.int64)
  end = graph.node('Add', begin, graph.shape(tuple(sizes[n] for n in axes)))
  name = graph.node('Slice', graph.whole(data), begin, end, graph.ints(*axes))
  name = graph.squeeze(name, numbers.collapsed_slice_dims)
  return [context.value(name, aval)]


def _take_rows(context, equation, data, indices, numbers):
  """x[i] for an array i, along any axis."""
  graph, aval = context.graph, equation.outvars[0].aval
  (axis,) = numbers.start_index_map
  flat = graph.squeeze(graph.whole(indices), [len(indices.shape) - 1])
  name = graph.whole(data)
  if axis == 0:
    name = graph.rows(name, flat)
  else:
    name = graph.node('Gather', name, flat, axis=axis)
  # ONNX has the axes of the indices in the place of the axis.
  count = len(indices.shape) - 1
  offsets = iter(numbers.offset_dims)
  rank = len(aval.shape)
  places = [n for n in range(rank) if n not in numbers.offset_dims]
  made = [next(offsets) for _ in range(axis)] + places + [*offsets]
  assert len(places) == count
  return [context.value(graph.transpose(name, np.argsort(made)), aval)]


def _take_along(context, equation, data, indices, numbers):
  """An index for each place of some axes, as take_along_axis has."""
  graph, aval = context.graph, equation.outvars[0].aval
  batch, count = numbers.operand_batching_dims, len(indices.shape) - 1
  first = tuple(range(len(batch)))
  axes = [*batch, *numbers.start_index_map]
  rest = [n for n in range(len(data.shape)) if n not in axes]
  sizes = equation.params['slice_sizes']
  whole = all(sizes[n] == data.shape[n] for n in rest)
  if numbers.start_indices_batching_dims != first or not whole:
    raise _unknown('gather', numbers)
  name = graph.node(
    'GatherND',
    graph.transpose(graph.whole(data), [*axes, *rest]),
    graph.cast(graph.whole(indices), np.int64),
    batch_dims=len(batch),
  )
  offsets = [*numbers.offset_dims]
  places = [n for n in range(len(aval.shape)) if n not in offsets]
  assert len(places) == count, equation
  name = graph.transpose(name, np.argsort([*places, *offsets]))
  return [context.value(name, aval)]


def _scatter(reduction):
  def rule(context, equation, values):
    graph, aval = context.graph, equation.outvars[0].aval
    data, indices, updates = values
    numbers = equation.params['dimension_numbers']
    axes = [*numbers.scatter_dims_to_operand_dims]
    count = len(indices.shape) - 1
    inner = tuple(range(count, len(updates.shape)))
    if (
      [*numbers.inserted_window_dims] != sorted(axes)
      or numbers.operand_batching_dims
      or tuple(numbers.update_window_dims) != inner
    ):
      raise _unknown('scatter', numbers)
    order = axes + [n for n in range(len(data.shape)) if n not in axes]
    at = graph.cast(graph.whole(indices), np.int64)
    new = graph.whole(updates)
    if not count:  # one place
      at, new = graph.unsqueeze(at, [0]), graph.unsqueeze(new, [0])
    name = graph.node(
      'ScatterND',
      graph.transpose(graph.whole(data), order),
      at,
      new,
      reduction=reduction,
    )
    return [context.value(graph.transpose(name, np.argsort(order)), aval)]

  return rule


def _dynamic_slice(context, equation, values):
  graph, aval = context.graph, equation.outvars[0].aval
  data, *starts = values
  sizes = equation.params['slice_sizes']
  axes = [n for n, size in enumerate(sizes) if size != data.shape[n]]
  if not axes:
    return [data]
  begins = [
    graph.unsqueeze(graph.cast(starts[n].name, np.int64), [0]) for n in axes
  ]
  begin = begins[0] if len(axes) == 1 else graph.node('Concat', *begins, axis=0)
  last = graph.shape(tuple(data.shape[n] - sizes[n] for n in axes))
  begin = graph.node('Min', graph.node('Max', begin, graph.ints(0)), last)
  end = graph.node('Add', begin, graph.shape(tuple(sizes[n] for n in axes)))
  name = graph.node('Slice', graph.whole(data), begin, end, graph.ints(*axes))
  return [context.value(name, aval)]


def _unknown(operation, numbers):
  return errors.InputError(
    f'--format=onnx: a {operation} of jax with {numbers} has no ONNX form '
    'here: use --format=stablehlo'
  )


RULES = {
  'dynamic_slice': _dynamic_slice,
  'gather': _gather,
  'scatter': _scatter('none'),
  'scatter-add': _scatter('add'),
  'scatter-max': _scatter('max'),
  'scatter-min': _scatter('min'),
}
