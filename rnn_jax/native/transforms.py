"""How JAX's transformations treat a call of the library.

`jax.vmap` maps it as more rows of one call. It is what a custom_vjp calls, both
ways; who differentiates it has asked for a gradient of a gradient, which it
hasn't.
"""

import functools

import jax
import jax.numpy as jnp


def by_rows(static: int = 0, shared: tuple[int, ...] = ()):
  """Decorates a function of arrays with the batch in front.

  It returns a tuple of arrays, with the batch in front as well.

  Args:
    static: how many arguments, the first ones, are no arrays.
    shared: numbers of the arrays that all rows read: they have no batch. Where
      one of them is mapped, one call follows the other.
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
        given = [
          x if has or (one_call and n in shared) else _repeat(x, size)
          for n, (x, has) in enumerate(zip(arrays, is_mapped, strict=True))
        ]
        if one_call:
          joined = [x if n in shared else _join(x) for n, x in enumerate(given)]
          results = tuple(_part(x, size) for x in run(*fixed, *joined))
        else:
          results = jax.lax.map(lambda x: run(*fixed, *x), given)
        return results, (True,) * len(results)

      return _without_gradients(call)(*arrays)

    return run

  return decorate


def _repeat(x, size):
  return jnp.broadcast_to(x, (size, *x.shape))


def _join(x):
  """The first two axes as one."""
  return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _part(x, size):
  """The first axis as two."""
  return x.reshape(size, x.shape[0] // size, *x.shape[1:])


def _without_gradients(call):
  call = jax.custom_jvp(call)

  @call.defjvp
  def refuse(primals, tangents):
    del primals, tangents
    raise NotImplementedError(
      "impl='native' has no gradients of gradients: use impl='scan'"
    )

  return call
