"""A function's sums and products, each replaced by one of a fixed order.

`evaluate` traces a function and runs its operations one by one as they are, but
sums of floats and products, in C++ (rnn_jax/native/rows.cc). So a model's step
has rows that don't depend on each other, whatever its cells are made from.
"""

import contextvars
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from rnn_jax.native import library

# As the library counts them. XLA's have two forms, for single numbers and for
# vectors, and an array's shape decides which of them computes a number.
FUNCTIONS = (
  ('exp', 'log', 'log1p', 'tanh', 'logistic', 'expm1', 'erf', 'sin', 'cos')
  + ('silu', 'log1p_exp')  # x logistic(x), log1p(exp(x))
)
FORMATS = jnp.float32, jnp.bfloat16, jnp.float16  # what is summed in float32
PRODUCTS = 'mul', 'square', 'integer_pow'
Numbers = tuple[tuple[Sequence[int], Sequence[int]], ...]

# What an operation runs, by its name: it is evaluated in its place.
INNER = {
  'jit': 'jaxpr',
  'pjit': 'jaxpr',
  'closed_call': 'call_jaxpr',
  'checkpoint': 'jaxpr',
  'remat2': 'jaxpr',
  'custom_jvp_call': 'call_jaxpr',
  'custom_vjp_call': 'call_jaxpr',
  'custom_vmap_call': 'call',
}

_ACTIVE = contextvars.ContextVar('fixed_order', default=False)


def total(x: jax.Array, axes: Sequence[int]) -> jax.Array:
  """Returns the sum of x over axes, in x's dtype.

  Raises:
    NotImplementedError: the library isn't available.
  """
  axes = sorted(axis % x.ndim for axis in axes)
  kept = [axis for axis in range(x.ndim) if axis not in axes]
  shape = [x.shape[axis] for axis in kept]
  if axes and axes[-1] - axes[0] >= len(axes):  # not next to each other
    x = x.transpose(*kept, *axes)
    axes = range(len(kept), x.ndim)
  if not math.prod(x.shape):
    return jnp.zeros(shape, x.dtype)
  ends = (axes[0], axes[-1] + 1) if axes else (x.ndim, x.ndim)
  parts = x.shape[: ends[0]], x.shape[slice(*ends)], x.shape[ends[1] :]
  outer, N, inner = map(math.prod, parts)
  result = jax.ShapeDtypeStruct((outer, inner), jnp.float32)
  y = library.call(
    'row_sums', (result,), x.astype(jnp.float32).reshape(outer, N, inner)
  )[0]
  return y.reshape(shape).astype(x.dtype)


def dot_general(x: jax.Array, w: jax.Array, numbers: Numbers) -> jax.Array:
  """Returns jax.lax.dot_general(x, w, numbers) in float32.

  Raises:
    NotImplementedError: the library isn't available.
  """
  (x_summed, w_summed), (x_rows, w_rows) = numbers
  if len(x_summed) != 1:
    x, w = (_join(a, n) for a, n in ((x, x_summed), (w, w_summed)))
    x_rows, w_rows = (
      [axis - sum(n < axis for n in summed) for axis in rows]
      for rows, summed in ((x_rows, x_summed), (w_rows, w_summed))
    )
    x_summed, w_summed = (x.ndim - 1,), (w.ndim - 1,)
  swaps = _is_wide(x, x_summed, x_rows) and not _is_wide(w, w_summed, w_rows)
  if swaps:
    x, x_summed, x_rows, w, w_summed, w_rows = (
      *(w, w_summed, w_rows),
      *(x, x_summed, x_rows),
    )
  x_free, w_free = _others(x, x_summed, x_rows), _others(w, w_summed, w_rows)
  shapes = [
    tuple(x.shape[n] for n in x_rows),
    tuple(x.shape[n] for n in x_free),
    tuple(w.shape[n] for n in w_free),
  ]
  if not math.prod(x.shape) * math.prod(w.shape):
    y = jnp.zeros(sum(shapes, ()))
  else:
    of_x, of_w = _apart(x), _apart(w)
    axes = [
      (x.shape[n], of_x[n], of_w[m])
      for n, m in zip(x_rows, w_rows, strict=True)
    ]
    axes += [(x.shape[n], of_x[n], 0) for n in x_free]
    axes += [(w.shape[m], 0, of_w[m]) for m in w_free[:-1]]
    (k,), (m,) = x_summed, w_summed
    last = [(w.shape[n], of_w[n]) for n in w_free[-1:]] or [(1, 0)]
    F, w_f = last[0]
    y = _products(x, w, axes, (x.shape[k], F, of_x[k], of_w[m], w_f))
    y = y.reshape(sum(shapes, ()))
  if not swaps:
    return y
  rows, free = len(shapes[0]), len(shapes[1])
  order = [*range(rows + free, y.ndim), *range(rows, rows + free)]
  return y.transpose(*range(rows), *order)


def _is_wide(x, summed, rows):
  """Whether neighbouring numbers of x belong to several results."""
  last = x.ndim - 1
  return last not in (*summed, *rows) and x.shape[last] > 1


def _products(x, w, axes, inner):
  size = math.prod(size for size, _, _ in axes)
  result = jax.ShapeDtypeStruct((size, inner[1]), jnp.float32)
  return library.call(
    'row_products',
    (result,),
    *(a.astype(jnp.float32).reshape(-1) for a in (x, w)),
    axes=np.array(axes, np.int64).reshape(-1),
    inner=np.array(inner, np.int64),
  )[0]


def is_active() -> bool:
  """Returns whether `evaluate` traces what is running."""
  return _ACTIVE.get()


def evaluate(run: Callable[..., Any], *args: Any) -> Any:
  """Returns run(*args), with sums and products in a fixed order.

  `args` and the result are pytrees of arrays.

  Raises:
    NotImplementedError: the library isn't available.
  """
  token = _ACTIVE.set(True)
  try:
    closed, shapes = jax.make_jaxpr(run, return_shape=True)(*args)
  finally:
    _ACTIVE.reset(token)
  results = _Evaluator().run(closed, jax.tree.leaves(args))
  return jax.tree.unflatten(jax.tree.structure(shapes), results)


class _Evaluator:
  """Evaluates jaxprs.

  Bits of products and divisors are combined with a 0 of which XLA doesn't know.
  Otherwise it makes one operation, with one rounding, of a product and a sum in
  the same kernel, and a product with the reciprocal of a quotient whose divisor
  is one number; both depend on the number of rows. A factor of 1 in place of
  these bits would be multiplied with the other constants first.
  """

  def __init__(self):
    result = jax.ShapeDtypeStruct((), jnp.float32)
    (one,) = library.call('row_one', (result,))
    self.zero = _bits(one) - np.float32(1).view(np.int32)

  def run(self, closed, inputs):
    jaxpr = getattr(closed, 'jaxpr', closed)
    consts = getattr(closed, 'consts', ())
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def value(atom):
      return atom.val if isinstance(atom, core.Literal) else known[atom]

    made = {}  # by what equation a value is
    for equation in jaxpr.eqns:
      if joined := _joined(equation, made):
        name, x = joined
        results = [_function(name, value(x))]
      else:
        results = self._run_one(equation, [value(x) for x in equation.invars])
      known |= dict(zip(equation.outvars, results, strict=True))
      made |= dict.fromkeys(equation.outvars, equation)
    return [value(atom) for atom in jaxpr.outvars]

  def _run_one(self, equation, inputs):
    name, params = equation.primitive.name, equation.params
    if name in INNER:
      return self.run(params[INNER[name]], inputs)
    if name in ('cond', 'while', 'scan'):
      return getattr(self, f'_{name}')(params, *inputs)
    y = self._replaced(equation, inputs)
    if y is not None:
      return [y]
    results = equation.primitive.bind(*inputs, **params)
    return results if equation.primitive.multiple_results else [results]

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

  def _replaced(self, equation, inputs):
    """Returns the result of what isn't run as it is, else None."""
    name, params = equation.primitive.name, equation.params
    dtypes = [jnp.result_type(x) for x in inputs]
    y = None
    if not all(dtype in FORMATS for dtype in dtypes):
      return y
    if name == 'reduce_sum':
      y = total(*inputs, params['axes'])
    elif name == 'dot_general':
      y = dot_general(*inputs, params['dimension_numbers'])
      y = y.astype(equation.outvars[0].aval.dtype)
    elif name in PRODUCTS and dtypes[0] == jnp.float32:
      y = equation.primitive.bind(*inputs, **params)
      y = _of_bits(_bits(y) ^ self.zero)
    elif name == 'div' and dtypes[0] == jnp.float32:
      x, divisor = inputs
      # Bits of x, so that it isn't one number for all.
      divisor = _of_bits(_bits(divisor) ^ (_bits(x) & self.zero))
      y = equation.primitive.bind(x, divisor, **params)
    elif name == 'rsqrt':
      y = 1 / jnp.sqrt(*inputs)
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


def _joined(equation, made):
  """Returns (name, argument) of a function that ends here, else None."""
  name, inputs = equation.primitive.name, equation.invars
  if equation.outvars[0].aval.dtype != jnp.float32:
    return None

  def source(atom, wanted):
    before = None if isinstance(atom, core.Literal) else made.get(atom)
    if before is None or before.primitive.name != wanted:
      return None
    return before.invars[0]

  if name == 'mul':
    for x, other in (inputs, inputs[::-1]):
      if source(other, 'logistic') is x:
        return 'silu', x
  if name == 'log1p' and (x := source(*inputs, 'exp')) is not None:
    return 'log1p_exp', x
  return None


def _function(name, x):
  result = jax.ShapeDtypeStruct(x.shape, jnp.float32)
  number = np.int64(FUNCTIONS.index(name))
  return library.call('row_function', (result,), x, name=number)[0]


def _bits(x):
  return jax.lax.bitcast_convert_type(x, jnp.int32)


def _of_bits(n):
  return jax.lax.bitcast_convert_type(n, jnp.float32)


def _others(x, *used):
  return [n for n in range(x.ndim) if not any(n in axes for axes in used)]


def _apart(x):
  """Returns by how many numbers x's neighbours are apart along each axis."""
  return [math.prod(x.shape[n + 1 :]) for n in range(x.ndim)]


def _join(x, axes):
  """Moves axes to the end, as one."""
  kept = _others(x, axes)
  shape = [x.shape[n] for n in kept]
  return x.transpose(*kept, *axes).reshape(*shape, -1)
