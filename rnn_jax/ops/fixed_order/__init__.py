"""Sums in an order that a row's length fixes, for rows that decode together.

    total(x, axes)              sum of x over axes
    norm(x, scale, bias, ...)   (x - mean) / sqrt(variance + epsilon) * scale
    logsumexp(x)    argmax(x)   of each row
    dot_general(x, w, numbers)  as jax.lax.dot_general
    evaluate(run, *args)        run(*args), its sums and products by the above

XLA adds a row's numbers in an order that depends on how many rows there are, as
it compiles a program for each number of them. Here a row's bits are the same in
any batch and on any number of threads: C++ on a CPU, rnn_jax/native/rows.cc.
Elementwise operations and maxima have one result in any order. Where the
library isn't available all of it is XLA's. Forward only.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
from rnn_jax.ops.fixed_order import rewriting

lacking = checks.lacking_native
IMPLS = ('auto', 'plain', 'native')
total = rewriting.total
dot_general = rewriting.dot_general
evaluate = rewriting.evaluate
is_active = rewriting.is_active


def norm(
  x: jax.Array,
  scale: jax.Array | None = None,
  bias: jax.Array | None = None,
  *,
  epsilon: float,
  centered: bool = False,
  impl: str = 'auto',
) -> jax.Array:
  """Norms the last axis, RMSNorm or LayerNorm. Returns ...xN in float32.

  Args:
    x: ...xN.
    scale: of the last axes of x, or None.
    bias: the same.
    epsilon: added to the variance.
    centered: whether the mean is subtracted, as in LayerNorm.
    impl: one of IMPLS. 'auto' is 'native' where it can run.

  Raises:
    ValueError: rows are empty, or scale or bias has another shape.
    NotImplementedError: 'native' where it can't run.
  """
  _check_rows(x)
  for name, w in (('scale', scale), ('bias', bias)):
    if w is not None and w.shape != x.shape[-w.ndim :]:
      raise ValueError(f'{name} has shape {w.shape}, and x {x.shape}')
  x = x.astype(jnp.float32)
  learned = [
    jnp.zeros((0,)) if w is None else w.astype(jnp.float32)
    for w in (scale, bias)
  ]
  if _is_native(impl):
    N = x.shape[-1]
    rows = (w.reshape(-1, N) if w.size else w for w in learned)
    y = _norm((epsilon, centered), x.reshape(-1, N), *rows)[0]
    return y.reshape(x.shape)
  if centered:
    x = x - jnp.mean(x, -1, keepdims=True)
  y = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon)
  a, b = (w.reshape((1,) * (x.ndim - w.ndim) + w.shape) for w in learned)
  y = y * a if a.size else y
  return y + b if b.size else y


def logsumexp(x: jax.Array, impl: str = 'auto') -> jax.Array:
  """Returns log(sum(exp(x))) over the last axis, float32.

  Raises:
    ValueError: rows are empty.
    NotImplementedError: 'native' where it can't run.
  """
  _check_rows(x)
  if not _is_native(impl):
    return jax.nn.logsumexp(x.astype(jnp.float32), -1)
  return _by_row('row_logsumexp', jnp.float32, x)


def argmax(x: jax.Array, impl: str = 'auto') -> jax.Array:
  """Returns the first index of the largest number of the last axis, int32.

  Raises:
    ValueError: rows are empty.
    NotImplementedError: 'native' where it can't run.
  """
  _check_rows(x)
  if _is_native(impl):
    return _by_row('row_argmax', jnp.int32, x)
  N = x.shape[-1]
  # XLA's argmax on a CPU takes longer.
  is_largest = x >= jnp.max(x, -1, keepdims=True)
  index_N = jnp.arange(N, dtype=jnp.int32).reshape((1,) * (x.ndim - 1) + (N,))
  return jnp.min(jnp.where(is_largest, index_N, N - 1), -1)


def _check_rows(x):
  if x.ndim < 1 or not x.shape[-1]:
    raise ValueError(f'x has shape {x.shape}: give rows of a number or more')


def _is_native(impl):
  checks.check_form(impl, IMPLS, None)
  why = lacking()
  if impl == 'native' and why:
    raise NotImplementedError(why)
  return impl != 'plain' and not why


@transforms.by_rows(static=1, shared=(1, 2))
def _norm(options, x, scale, bias):
  epsilon, centered = options
  result = jax.ShapeDtypeStruct(x.shape, jnp.float32)
  own = {'epsilon': np.float32(epsilon), 'centered': centered}
  return library.call('row_norm', (result,), x, scale, bias, **own)


def _by_row(target, dtype, x):
  @transforms.by_rows()
  def run(x):
    result = jax.ShapeDtypeStruct(x.shape[:1], dtype)
    return library.call(target, (result,), x)

  x = x.astype(jnp.float32)
  return run(x.reshape(-1, x.shape[-1]))[0].reshape(x.shape[:-1])
