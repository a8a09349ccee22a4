"""Operators that the traced model names itself; see operators.py."""

from rnn_jax.interop.onnx import operators


def _operator(context, equation, values):
  params, remaining = equation.params, iter(values)
  names = [
    context.graph.whole(next(remaining)) if given else ''
    for given in params['given']
  ]
  names = context.graph.nodes_of(
    params['name'], names, len(equation.outvars), **dict(params['attributes'])
  )
  return [
    context.value(name, out.aval)
    for name, out in zip(names, equation.outvars, strict=True)
  ]


RULES = {operators.NAME: _operator}
