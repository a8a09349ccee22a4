"""Sums in an order that a row's length fixes, for rows that decode together.

    evaluate(run, *args)        run(*args), its sums and products as below
    total(x, axes)              sum of x over axes
    logsumexp(x)    argmax(x)   of each row
    dot_general(x, w, numbers)  as jax.lax.dot_general

XLA adds a row's numbers in an order that depends on how many rows there are, as
it compiles a program for each number of them. Here a row's bits are the same in
any batch and on any number of threads: C++ on a CPU, rnn_jax/native/rows.cc and
row_programs.cc. Elementwise operations and maxima have one result in any order.
Where the library isn't available all of it is XLA's. Forward only.
"""

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
from rnn_jax.ops.fixed_order import rewriting
from rnn_jax.ops.fixed_order import sums

lacking = checks.lacking_native
IMPLS = ('auto', 'plain', 'native')
total = sums.total
dot_general = sums.dot_general
evaluate = rewriting.evaluate
is_active = rewriting.is_active


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


def _by_row(target, dtype, x):
  @transforms.by_rows()
  def run(x):
    result = jax.ShapeDtypeStruct(x.shape[:1], dtype)
    return library.call(target, (result,), x)

  x = x.astype(jnp.float32)
  return run(x.reshape(-1, x.shape[-1]))[0].reshape(x.shape[:-1])
