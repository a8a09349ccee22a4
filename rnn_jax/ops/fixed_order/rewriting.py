"""A function's operations, each replaced by one of a fixed order.

`evaluate` traces a function. What it computes row by row between products and
recurrences are programs of rows (schedule.py, row_programs.py); its other sums
and products run in C++ too (rnn_jax/native/rows.cc), and the rest as it is. So
a model's step has rows that don't depend on each other, whatever its cells are
made from, and few calls.
"""

import contextvars
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.native import library
from rnn_jax.ops import checks
from rnn_jax.ops.fixed_order import graph
from rnn_jax.ops.fixed_order import row_programs
from rnn_jax.ops.fixed_order import schedule as schedule_lib
from rnn_jax.ops.fixed_order import sums

FUNCTIONS = schedule_lib.FUNCTIONS
FORMATS = jnp.float32, jnp.bfloat16, jnp.float16  # what is summed in float32
PRODUCTS = 'mul', 'square', 'integer_pow'

_ACTIVE = contextvars.ContextVar('fixed_order', default=False)


def is_active() -> bool:
  """Returns whether `evaluate` traces what is running."""
  return _ACTIVE.get()


def evaluate(run: Callable[..., Any], *args: Any, rows: int = 1) -> Any:
  """Returns run(*args), with sums and products in a fixed order.

  As it is where the library isn't available.

  Args:
    run: what all rows read, as parameters, it closes over.
    *args: pytrees of arrays, as the result.
    rows: arrays whose first axis is as long are computed row by row; 1: they
      are one row.
  """
  if checks.lacking_native():
    return run(*args)
  token = _ACTIVE.set(True)
  try:
    closed, shapes = jax.make_jaxpr(run, return_shape=True)(*args)
  finally:
    _ACTIVE.reset(token)
  results = _Evaluator(rows).run(closed, jax.tree.leaves(args))
  return jax.tree.unflatten(jax.tree.structure(shapes), results)


class _Evaluator:
  """Evaluates jaxprs.

  Where XLA computes products and divisors, their bits are combined with a 0 of
  which it doesn't know. Otherwise it makes one operation, with one rounding, of
  a product and a sum in the same kernel, and a product with the reciprocal of a
  quotient whose divisor is one number; both depend on the number of rows. A
  factor of 1 in place of these bits would be multiplied with the other
  constants first.
  """

  def __init__(self, rows):
    self.rows = rows
    result = jax.ShapeDtypeStruct((), jnp.float32)
    (one,) = library.call('row_one', (result,))
    self.zero = _bits(one) - np.float32(1).view(np.int32)

  def run(self, closed, inputs):
    given = [graph.of_array(x) for x in inputs]
    nodes, results = graph.trace(closed, given)
    schedule = schedule_lib.Schedule(nodes, given, results, self.rows)
    made, stored = {}, {}

    def array(value):
      if value.known is not None:
        return value.known
      if value not in made:  # a view, or what doesn't depend on rows
        run_one(value.node)
      return made[value]

    def run_one(node):
      results = self._run_one(node, [array(x) for x in node.inputs])
      made.update(zip(node.outputs, results, strict=True))

    for depth in sorted({*schedule.others, *schedule.programs}):
      for node in schedule.others.get(depth, ()):
        run_one(node)
      if schedule.returned.get(depth):
        program = row_programs.Program(schedule, depth)
        made |= program.run(array, stored)
    return [array(x) for x in results]

  def _run_one(self, node, inputs):
    name, params = node.name, node.params
    if name in ('cond', 'while', 'scan'):
      return getattr(self, f'_{name}')(params, *inputs)
    y = self._replaced(node, inputs)
    if y is not None:
      return [y]
    results = node.primitive.bind(*inputs, **params)
    return results if node.primitive.multiple_results else [results]

  def _cond(self, params, index, *inputs):
    runs = [
      lambda *x, branch=branch: self.run(branch, x)
      for branch in params['branches']
    ]
    return jax.lax.switch(index, runs, *inputs)

  def _while(self, params, *inputs):
    first = params['cond_nconsts']
    second = first + params['body_nconsts']
    goes_on, body = params['cond_jaxpr'], params['body_jaxpr']
    return jax.lax.while_loop(
      lambda carry: self.run(goes_on, [*inputs[:first], *carry])[0],
      lambda carry: self.run(body, [*inputs[first:second], *carry]),
      [*inputs[second:]],
    )

  def _scan(self, params, *inputs):
    constants, carry, x = scan_parts(params, inputs)
    carried = len(carry)

    def body(carry, x):
      results = self.run(params['jaxpr'], [*constants, *carry, *x])
      return results[:carried], results[carried:]

    options = {name: params[name] for name in ('length', 'reverse', 'unroll')}
    carry, y = jax.lax.scan(body, carry, x, **options)
    return [*carry, *y]

  def _replaced(self, node, inputs):
    """Returns the result of what isn't run as it is, else None."""
    name, params = node.name, node.params
    dtypes = [jnp.result_type(x) for x in inputs]
    y = None
    if not all(dtype in FORMATS for dtype in dtypes):
      return y
    if name == 'reduce_sum':
      y = sums.total(*inputs, params['axes'])
    elif name == 'dot_general':
      y = sums.dot_general(*inputs, params['dimension_numbers'])
      y = y.astype(node.result.dtype)
    elif name in PRODUCTS and dtypes[0] == jnp.float32:
      y = node.primitive.bind(*inputs, **params)
      y = _of_bits(_bits(y) ^ self.zero)
    elif name == 'div' and dtypes[0] == jnp.float32:
      x, divisor = inputs
      # Bits of x, so that it isn't one number for all.
      divisor = _of_bits(_bits(divisor) ^ (_bits(x) & self.zero))
      y = node.primitive.bind(x, divisor, **params)
    elif name == 'rsqrt' and dtypes[0] == jnp.float32:
      y = 1 / _of_bits(_bits(jnp.sqrt(*inputs)) ^ self.zero)
    elif name in FUNCTIONS and dtypes[0] == jnp.float32:
      y = _function(name, *inputs)
    return y


def scan_parts(
  params: Mapping[str, Any], inputs: Sequence[Any]
) -> list[list[Any]]:
  """Returns the inputs of a traced scan as [constants, carry, x].

  `params` are those of its equation.
  """
  if 'num_consts' not in params:  # jax 0.12
    return [[*part] for part in params['ft_in'].update(inputs).unpack()]
  first = params['num_consts']
  second = first + params['num_carry']
  parts = inputs[:first], inputs[first:second], inputs[second:]
  return [[*part] for part in parts]


def _function(name, x):
  result = jax.ShapeDtypeStruct(x.shape, jnp.float32)
  number = np.int64(FUNCTIONS.index(name))
  return library.call('row_function', (result,), x, name=number)[0]


def _bits(x):
  return jax.lax.bitcast_convert_type(x, jnp.int32)


def _of_bits(n):
  return jax.lax.bitcast_convert_type(n, jnp.float32)
