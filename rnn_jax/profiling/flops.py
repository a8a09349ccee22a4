"""Counts the operations of matmuls and convolutions in a jaxpr.

A matmul of MxK by KxN has 2 M K N, for each entry of its batch; a convolution 2
for each output number, input channel of its group and tap. The body of a scan
counts once per iteration; of a `cond` the most expensive branch counts. XLA's
own account counts the body of a loop once.

Inside a `shard_map` the count is one device's, as the shapes are; outside, one
device is assumed to do all the work. Elementwise work is not counted, and the
body of a `while` counts once; that of a layer's experts as often as in an even
load, and that of a kernel as often as it has programs.
"""

import collections
import math
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from jax.extend import core

from rnn_jax.ops import gated
from rnn_jax.ops import gated_layers
from rnn_jax.ops import routed
from rnn_jax.ops import slstm

# The widest first.
FORMATS = 'float32', 'bfloat16', 'float16', 'int8', 'float8_e4m3fn'


def count(jaxpr: core.ClosedJaxpr | core.Jaxpr) -> dict[str, float]:
  """Returns the operations of a program by the format of the factors."""
  total = collections.Counter()
  for eqn in getattr(jaxpr, 'jaxpr', jaxpr).eqns:
    total.update(of_equation(eqn))
  return dict(total)


def of_equation(eqn: core.JaxprEqn) -> Mapping[str, float]:
  """Returns the operations of an equation by the format of the factors."""
  name, params = eqn.primitive.name, eqn.params
  if name == 'dot_general':
    return {_format(eqn): _matmul(eqn)}
  if name == 'conv_general_dilated':
    return {_format(eqn): _convolution(eqn)}
  if name == 'wgmma_ref':  # of our kernels, whose tiles are square
    rows, columns = eqn.invars[0].aval.shape
    return {eqn.invars[1].aval.dtype.name: 2 * rows * columns * rows}
  if name == 'ffi_call':
    return _native(eqn)
  if name == 'cond':
    branches = [count(branch) for branch in params['branches']]
    return max(branches, key=lambda counted: sum(counted.values()))
  total = collections.Counter()
  for inner in jaxprs(params.values()):
    total.update(count(inner))
  times = repeats(name, params)
  return {key: times * number for key, number in total.items()}


def repeats(primitive: str, params: Mapping[str, Any]) -> int:
  """Returns how often an equation runs the jaxprs that it holds."""
  if primitive == 'scan':
    return params['length']
  if primitive == 'pallas_call':
    return math.prod(params['grid_mapping'].grid)
  if primitive == 'mpmd_map':  # the programs of a kernel of Mosaic's
    return math.prod(params['meshes'][0].grid)
  name = params.get('name')
  return routed.repeats(name) if isinstance(name, str) else 1


def _native(eqn):
  """Counts a call of a native gated cell: one product per matrix and step.

  The backward pass of an sLSTM may also multiply for its matrix's gradient.
  """
  kind, _, way = (
    eqn.params['target_name'].removeprefix('rnn_jax_').rpartition('_')
  )
  if kind not in {*gated.KINDS, *gated_layers.KINDS, slstm.KIND}:
    return {}
  forward = way == 'forward'
  h = (eqn.outvars[0] if forward else eqn.invars[4]).aval
  begin = 1 if forward else 0
  first, second = (x.aval.size for x in eqn.invars[begin : begin + 2])
  matrices = first + second if kind == 'gru_before' else first
  parts = eqn.outvars[-1].aval.size  # of the gradient of an sLSTM's matrix
  products = 2 if kind == slstm.KIND and not forward and parts else 1
  return {'float32': 2 * h.size // h.shape[-1] * matrices * products}


def jaxprs(values: Iterable[Any]) -> Iterator[core.ClosedJaxpr | core.Jaxpr]:
  """Yields the jaxprs among an equation's parameters."""
  for value in values:
    if isinstance(value, (core.ClosedJaxpr, core.Jaxpr)):
      yield value
    elif isinstance(value, (tuple, list)):
      yield from jaxprs(value)


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
  """Returns the factors' dtype, or 'tf32' if the program requests it."""
  dtypes = {var.aval.dtype.name for var in eqn.invars[:2]}
  precision = str(eqn.params.get('precision'))
  if dtypes == {'float32'} and 'TF32' in precision:
    return 'tf32'
  # The product of two formats is computed in the wider one.
  return next((name for name in FORMATS if name in dtypes), 'float32')
