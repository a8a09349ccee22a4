"""How JAX's transformations treat a call of the library.

`jax.vmap` maps it as more rows of one call. It is what a custom_vjp calls, both
ways; who differentiates it has asked for a gradient of a gradient, which it
hasn't.
"""

import functools

import jax
import jax.numpy as jnp


def by_rows(static: int):
  """Decorates a function of arrays with the batch in front.

  Its first `static` arguments are no arrays. It returns a tuple of arrays, with
  the batch in front as well.
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
        joined = [
          _join(x if has_axis else jnp.broadcast_to(x[None], (size, *x.shape)))
          for x, has_axis in zip(arrays, is_mapped, strict=True)
        ]
        results = run(*fixed, *joined)
        apart = tuple(x.reshape(size, -1, *x.shape[1:]) for x in results)
        return apart, (True,) * len(apart)

      return _without_gradients(call)(*arrays)

    return run

  return decorate


def _join(x):
  """The first two axes as one."""
  return x.reshape(-1, *x.shape[2:])


def _without_gradients(call):
  call = jax.custom_jvp(call)

  @call.defjvp
  def refuse(primals, tangents):
    del primals, tangents
    raise NotImplementedError(
      "impl='native' has no gradients of gradients: use impl='scan'"
    )

  return call
