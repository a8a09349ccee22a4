"""How `jax.vmap` maps a call of the library: as more rows of one call."""

import functools

import jax


def over_rows(nondiff: int):
  """Decorates a function of arrays with the batch in front.

  Its first `nondiff` arguments are static. A mapped axis joins the batch of
  every argument and result, so that a call stays one call.
  """

  def decorate(function):
    @functools.wraps(function)
    def run(*args):
      static, arrays = args[:nondiff], args[nondiff:]
      call = jax.custom_batching.custom_vmap(
        functools.partial(function, *static)
      )

      @call.def_vmap
      def mapped(size, is_mapped, *arrays):
        arrays = [
          x if one else jax.numpy.broadcast_to(x[None], (size, *x.shape))
          for x, one in zip(arrays, is_mapped, strict=True)
        ]
        joined = (x.reshape(-1, *x.shape[2:]) for x in arrays)
        results = run(*static, *joined)
        apart = (x.reshape(size, -1, *x.shape[1:]) for x in results)
        results = type(results)(apart)
        return results, jax.tree.map(lambda _: True, results)

      return call(*arrays)

    return run

  return decorate
