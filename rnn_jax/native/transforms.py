"""JAX transformations of calls of the library.

`jax.vmap` adds rows to the call. The forward and the backward pass of a
custom_vjp call the library; differentiating such a call would be a second
derivative, which isn't implemented.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def by_rows(
  static: int = 0, shared: tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., tuple[jax.Array, ...]]]:
  """Returns a decorator for a function of arrays with the batch on axis 0.

  The function returns a tuple of arrays, also with the batch on axis 0.

  Args:
    static: the number of leading arguments that aren't arrays.
    shared: indices of the arrays that all rows read: they have no batch. Where
      one of them is mapped, the calls run one after the other.
  """

  def decorate(function):
    @functools.wraps(function)
    def run(*args):
      fixed, arrays = args[:static], args[static:]
      call = jax.custom_batching.custom_vmap(
        functools.partial(function, *fixed)
      )

      @call.def_vmap
      def mapped(size, is_mapped, *arrays):
        one_call = not any(is_mapped[n] for n in shared)
        inputs = [
          x if has or (one_call and n in shared) else _repeat(x, size)
          for n, (x, has) in enumerate(zip(arrays, is_mapped, strict=True))
        ]
        if one_call:
          joined = [
            x if n in shared else _join(x) for n, x in enumerate(inputs)
          ]
          results = tuple(_split(x, size) for x in run(*fixed, *joined))
        else:
          results = jax.lax.map(lambda x: run(*fixed, *x), inputs)
        return results, (True,) * len(results)

      return _without_gradients(call)(*arrays)

    return run

  return decorate


def _repeat(x, size):
  return jnp.broadcast_to(x, (size, *x.shape))


def _join(x):
  """Joins the first two axes."""
  return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _split(x, size):
  """Splits the first axis in two."""
  return x.reshape(size, x.shape[0] // size, *x.shape[1:])


def _without_gradients(call):
  call = jax.custom_jvp(call)

  @call.defjvp
  def refuse(primals, tangents):
    del primals, tangents
    raise NotImplementedError(
      "impl='native' has no second derivatives: use impl='scan'"
    )

  return call
