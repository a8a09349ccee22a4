"""Operations of matmuls and convolutions, counted from a jaxpr.

A matmul of MxK by KxN has 2 M K N, for each of its batch; a convolution 2 for
each number that comes out, input channel of its group and tap. What a scan
holds counts as often as it turns, of a `cond` the branch that has most. XLA's
own account counts the body of a loop once, whatever its turns.

Inside of a `shard_map` shapes are one device's, and so is what is counted;
outside of one a device is taken to do all of it. Elementwise work is not
counted, nor how often a `while` turns: its body counts once.
"""

import collections
import math
from collections.abc import Iterator
from collections.abc import Mapping

from jax.extend import core

from rnn_jax.ops import gated

FORMATS = 'float32', 'bfloat16', 'float16', 'int8'  # the widest first


def count(jaxpr: core.ClosedJaxpr | core.Jaxpr) -> dict[str, float]:
  """Returns the operations of a program, {format of the factors: number}."""
  total = collections.Counter()
  for eqn in getattr(jaxpr, 'jaxpr', jaxpr).eqns:
    total.update(_of(eqn))
  return dict(total)


def _of(eqn) -> Mapping[str, float]:
  name, params = eqn.primitive.name, eqn.params
  if name == 'dot_general':
    return {_format(eqn): _matmul(eqn)}
  if name == 'conv_general_dilated':
    return {_format(eqn): _convolution(eqn)}
  if name == 'ffi_call':
    return _native(eqn)
  if name == 'cond':
    branches = [count(branch) for branch in params['branches']]
    return max(branches, key=lambda counted: sum(counted.values()))
  total = collections.Counter()
  for inner in _jaxprs(params.values()):
    total.update(count(inner))
  times = params['length'] if name == 'scan' else 1
  return {key: times * number for key, number in total.items()}


def _native(eqn):
  """Of a call of native/gated.cc: one product of h with U, at each step."""
  kind, _, way = (
    eqn.params['target_name'].removeprefix('rnn_jax_').rpartition('_')
  )
  if kind not in gated.KINDS:
    return {}
  forward = way == 'forward'
  h = (eqn.outvars[0] if forward else eqn.invars[4]).aval
  kernel = eqn.invars[1 if forward else 0].aval
  return {'float32': 2 * h.size * kernel.shape[1]}


def _jaxprs(values) -> Iterator:
  for value in values:
    if isinstance(value, (core.ClosedJaxpr, core.Jaxpr)):
      yield value
    elif isinstance(value, (tuple, list)):
      yield from _jaxprs(value)


def _matmul(eqn):
  left = eqn.invars[0].aval.shape
  (contracted, _), _ = eqn.params['dimension_numbers']
  summed = math.prod(left[axis] for axis in contracted)
  return 2 * math.prod(eqn.outvars[0].aval.shape) * summed


def _convolution(eqn):
  kernel = eqn.invars[1].aval.shape
  outputs = kernel[eqn.params['dimension_numbers'].rhs_spec[0]]
  taps = math.prod(kernel) // outputs
  return 2 * math.prod(eqn.outvars[0].aval.shape) * taps


def _format(eqn):
  """The factors' dtype; 'tf32' where the program asks for that."""
  dtypes = {var.aval.dtype.name for var in eqn.invars[:2]}
  precision = str(eqn.params.get('precision'))
  if dtypes == {'float32'} and 'TF32' in precision:
    return 'tf32'
  # Of two formats the wider one is multiplied.
  return next((name for name in FORMATS if name in dtypes), 'float32')
