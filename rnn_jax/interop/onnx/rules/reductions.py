"""Sums, maxima and the like over axes, and running ones."""

import numpy as np


def _reduce(operator):
  def rule(context, equation, values):
    graph, aval = context.graph, equation.outvars[0].aval
    axes = equation.params['axes']
    name = graph.whole(values[0])
    if axes:
      name = graph.node(operator, name, graph.ints(*axes), keepdims=0)
    return [context.value(name, aval)]

  return rule


def _of_bools(operator):
  """`or` is the maximum of 0 and 1, `and` the minimum."""

  def rule(context, equation, values):
    graph, aval = context.graph, equation.outvars[0].aval
    name = graph.cast(graph.whole(values[0]), np.int32)
    axes = graph.ints(*equation.params['axes'])
    name = graph.cast(graph.node(operator, name, axes, keepdims=0), bool)
    return [context.value(name, aval)]

  return rule


def _arg(operator):
  def rule(context, equation, values):
    graph, aval = context.graph, equation.outvars[0].aval
    (axis,) = equation.params['axes']
    name = graph.whole(values[0])
    if values[0].dtype == bool:
      name = graph.cast(name, np.int32)
    name = graph.node(operator, name, axis=axis, keepdims=0)
    return [context.value(graph.cast(name, aval.dtype), aval)]

  return rule


def _cumulative_sum(context, equation, values):
  graph, params = context.graph, equation.params
  name = graph.node(
    'CumSum',
    graph.whole(values[0]),
    graph.constant(np.int64(params['axis'])),
    reverse=int(params['reverse']),
  )
  return [context.value(name, equation.outvars[0].aval)]


def _top_k(context, equation, values):
  graph = context.graph
  best, where = (out.aval for out in equation.outvars)
  names = graph.nodes_of(
    'TopK', [graph.whole(values[0]), graph.dim(best.shape[-1])], 2, axis=-1
  )
  return [
    context.value(names[0], best),
    context.value(graph.cast(names[1], where.dtype), where),
  ]


RULES = {
  'argmax': _arg('ArgMax'),
  'argmin': _arg('ArgMin'),
  'cumsum': _cumulative_sum,
  'reduce_and': _of_bools('ReduceMin'),
  'reduce_max': _reduce('ReduceMax'),
  'reduce_min': _reduce('ReduceMin'),
  'reduce_or': _of_bools('ReduceMax'),
  'reduce_prod': _reduce('ReduceProd'),
  'reduce_sum': _reduce('ReduceSum'),
  'top_k': _top_k,
}
