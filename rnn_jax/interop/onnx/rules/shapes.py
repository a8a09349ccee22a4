"""Operations that move numbers: broadcasts, splits, joins and the like."""

import numpy as np

from rnn_jax.interop.onnx import graph as graph_lib

Value = graph_lib.Value


def _broadcast(context, equation, values):
  """A broadcast only adds axes of size 1; see graph.Value."""
  value, (output,) = values[0], equation.outvars
  shape, axes = output.aval.shape, equation.params['broadcast_dimensions']
  if not value.stored:  # one number
    return [Value(value.name, (), shape, output.aval.dtype)]
  stored = [1] * len(shape)
  for axis, size in zip(axes, value.stored, strict=True):
    stored[axis] = size
  new = [axis for axis in range(len(shape)) if axis not in axes]
  name = context.graph.unsqueeze(value.name, new)
  return [Value(name, tuple(stored), shape, output.aval.dtype)]


def _reshape(context, equation, values):
  (output,) = equation.outvars
  name = context.graph.whole(values[0])
  name = context.graph.reshape(name, values[0].shape, output.aval.shape)
  return [context.value(name, output.aval)]


def _transpose(context, equation, values):
  order = equation.params['permutation']
  name = context.graph.transpose(context.graph.whole(values[0]), order)
  return [context.value(name, equation.outvars[0].aval)]


def _squeeze(context, equation, values):
  axes = equation.params['dimensions']
  name = context.graph.squeeze(context.graph.whole(values[0]), axes)
  return [context.value(name, equation.outvars[0].aval)]


def _concatenate(context, equation, values):
  names = map(context.graph.whole, values)
  name = context.graph.node('Concat', *names, axis=equation.params['dimension'])
  return [context.value(name, equation.outvars[0].aval)]


def _stack(context, equation, values):
  graph, axis = context.graph, equation.params['axis']
  names = [graph.unsqueeze(graph.whole(value), [axis]) for value in values]
  name = graph.node('Concat', *names, axis=axis)
  return [context.value(name, equation.outvars[0].aval)]


def _split(context, equation, values):
  graph, avals = context.graph, [out.aval for out in equation.outvars]
  axis = equation.params['axis']
  names = [graph.whole(values[0])]
  if len(avals) > 1:
    sizes = [graph.dim(aval.shape[axis]) for aval in avals]
    given = graph.shape(tuple(aval.shape[axis] for aval in avals))
    names = graph.nodes_of('Split', [names[0], given], len(sizes), axis=axis)
  return [*map(context.value, names, avals)]


def _slice(context, equation, values):
  graph, params = context.graph, equation.params
  shape = values[0].shape
  bounds = zip(
    params['start_indices'],
    params['limit_indices'],
    params['strides'] or (1,) * len(shape),
    shape,
    strict=True,
  )
  cut = [
    (axis, begin, end, stride)
    for axis, (begin, end, stride, size) in enumerate(bounds)
    if (begin, end, stride) != (0, size, 1)
  ]
  name = graph.whole(values[0])
  if cut:
    axes, begins, ends, steps = zip(*cut, strict=True)
    name = graph.node(
      'Slice',
      name,
      graph.shape(begins),
      graph.shape(ends),
      graph.ints(*axes),
      graph.ints(*steps),
    )
  return [context.value(name, equation.outvars[0].aval)]


def _reverse(context, equation, values):
  graph, axes = context.graph, equation.params['dimensions']
  count = len(axes)
  name = graph.node(
    'Slice',
    graph.whole(values[0]),
    graph.ints(*[-1] * count),
    graph.ints(*[np.iinfo(np.int64).min] * count),
    graph.ints(*axes),
    graph.ints(*[-1] * count),
  )
  return [context.value(name, equation.outvars[0].aval)]


def _pad(context, equation, values):
  graph, config = context.graph, equation.params['padding_config']
  assert not any(inner for _, _, inner in config), equation
  pads = [low for low, _, _ in config] + [high for _, high, _ in config]
  name = graph.node(
    'Pad', graph.whole(values[0]), graph.shape(tuple(pads)), values[1].name
  )
  return [context.value(name, equation.outvars[0].aval)]


def _iota(context, equation, values):
  del values
  graph, params = context.graph, equation.params
  axis, aval = params['dimension'], equation.outvars[0].aval
  size = aval.shape[axis]
  end = graph.squeeze(graph.dim(size), [0])
  zero, one = (graph.constant(np.int64(n)) for n in (0, 1))
  name = graph.cast(graph.node('Range', zero, end, one), aval.dtype)
  others = [n for n in range(len(aval.shape)) if n != axis]
  stored = tuple(1 if n in others else size for n in range(len(aval.shape)))
  name = graph.unsqueeze(name, others)
  return [Value(name, stored, aval.shape, aval.dtype)]


def _dim(context, equation, values):
  del values
  graph, aval = context.graph, equation.outvars[0].aval
  size = graph.squeeze(graph.dim(equation.params['dim']), [0])
  return [context.value(graph.cast(size, aval.dtype), aval)]


RULES = {
  'broadcast_in_dim': _broadcast,
  'concatenate': _concatenate,
  'dim_as_value': _dim,
  'iota': _iota,
  'pad': _pad,
  'reshape': _reshape,
  'rev': _reverse,
  'slice': _slice,
  'split': _split,
  'squeeze': _squeeze,
  'stack': _stack,
  'transpose': _transpose,
}
