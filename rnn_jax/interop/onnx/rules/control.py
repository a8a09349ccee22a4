"""Functions, loops and branches.

A scan is ONNX's Scan, whose body sees the tensors around it; one that reads
nothing step by step, and `while`, are a Loop; a condition is an If.
"""

import numpy as np

from rnn_jax import errors
from rnn_jax.interop.onnx import graph as graph_lib
from rnn_jax.interop.onnx import translation
from rnn_jax.ops.fixed_order import rewriting


def _call(context, equation, values):
  """A function within the program becomes a part of it."""
  for key in ('jaxpr', 'call_jaxpr', 'fun_jaxpr'):
    if key in equation.params:
      inner, consts = translation.opened(equation.params[key])
      break
  return context.run(inner, consts, values)


def _jit(context, equation, values):
  # ONNX's own keeps the digits of both ends.
  if equation.params['name'] == 'softplus' and len(values) == 1:
    aval = equation.outvars[0].aval
    name = context.graph.node('Softplus', context.graph.whole(values[0]))
    return [context.value(name, aval)]
  return _call(context, equation, values)


def _scan(context, equation, values):
  graph, params = context.graph, equation.params
  consts, carry, scanned = rewriting.scan_parts(params, values)
  if not scanned:
    return _repeat(context, equation, consts, carry)
  inner = context.body(params['jaxpr'], consts, graph.fresh('body'))
  made = len(equation.outvars) - len(carry)
  backward = {}
  if params['reverse']:
    backward['scan_input_directions'] = [1] * len(scanned)
    if made:
      backward['scan_output_directions'] = [1] * made
  names = graph.nodes_of(
    'Scan',
    [graph.whole(value) for value in (*carry, *scanned)],
    len(equation.outvars),
    body=inner,
    num_scan_inputs=len(scanned),
    **backward,
  )
  return [
    context.value(name, out.aval)
    for name, out in zip(names, equation.outvars, strict=True)
  ]


def _repeat(context, equation, consts, carry):
  """A scan over nothing: a number of steps."""
  graph, params = context.graph, equation.params
  if len(equation.outvars) != len(carry) or params['reverse']:
    raise errors.InputError(
      '--format=onnx: a scan that reads nothing has no ONNX form here: use '
      '--format=stablehlo'
    )
  steps = graph.squeeze(graph.dim(params['length']), [0])
  inner = context.body(
    params['jaxpr'],
    consts,
    graph.fresh('body'),
    _loop_inputs(graph),
    lambda inner, _: inner.constant(np.array(True), bool),
  )
  # Without a condition onnx's evaluator takes no step.
  holds = graph.constant(np.array(True), bool)
  return _loop(context, equation, [steps, holds], carry, inner)


def _while(context, equation, values):
  graph, params = context.graph, equation.params
  test, body = params['cond_jaxpr'], params['body_jaxpr']
  of_test, of_body = params['cond_nconsts'], params['body_nconsts']
  test_consts = values[:of_test]
  body_consts = values[of_test : of_test + of_body]
  carry = values[of_test + of_body :]

  def holds(inner, carry):
    return inner.run(*translation.opened(test), [*test_consts, *carry])[0]

  inner = context.body(
    body,
    body_consts,
    graph.fresh('body'),
    _loop_inputs(graph),
    holds,
  )
  first = graph.whole(holds(context, carry))
  return _loop(context, equation, ['', first], carry, inner)


def _loop_inputs(graph):
  return [
    graph_lib.info(graph.fresh('step'), (), np.int64),
    graph_lib.info(graph.fresh('holds'), (), bool),
  ]


def _loop(context, equation, first, carry, inner):
  graph = context.graph
  names = graph.nodes_of(
    'Loop', [*first, *map(graph.whole, carry)], len(carry), body=inner
  )
  return [
    context.value(name, out.aval)
    for name, out in zip(names, equation.outvars, strict=True)
  ]


def _cond(context, equation, values):
  graph, branches = context.graph, equation.params['branches']
  which, *args = values
  if len(branches) != 2:
    raise errors.InputError(
      f'--format=onnx: a choice of {len(branches)} has no ONNX form here: use '
      '--format=stablehlo'
    )
  no, yes = (
    context.body(branch, args, graph.fresh('branch')) for branch in branches
  )
  names = graph.nodes_of(
    'If',
    [graph.cast(which.name, bool)],
    len(equation.outvars),
    then_branch=yes,
    else_branch=no,
  )
  return [
    context.value(name, out.aval)
    for name, out in zip(names, equation.outvars, strict=True)
  ]


RULES = {
  'cond': _cond,
  'jit': _jit,
  'pjit': _jit,
  'scan': _scan,
  'while': _while,
} | dict.fromkeys(
  (
    'checkpoint',
    'closed_call',
    'core_call',
    'custom_jvp_call',
    'custom_vjp_call',
    'remat',
    'remat2',
  ),
  _call,
)
