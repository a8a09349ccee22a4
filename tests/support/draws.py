"""Parameters and inputs from NumPy: jax.random compiles for every shape."""

import jax
import jax.numpy as jnp
import numpy as np


def normal(*shape, seed=0):
  """Standard normal numbers in float32."""
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), 'float32')


def parameters(init, *inputs, seed=0):
  """What `init(key, *inputs)` makes, away from the zeros and ones of its start.

  Those would hide mistakes: a bias that is not added.
  """
  rng = np.random.default_rng(seed)

  def draw(path, like):
    spread = rng.normal(size=like.shape)
    name = path[-1].key
    if name.endswith('bias'):
      return jnp.asarray(0.2 * spread, like.dtype)
    if name == 'scale':
      return jnp.asarray(1 + 0.2 * spread, like.dtype)
    if len(like.shape) == 1:
      return jnp.asarray(0.2 * spread, like.dtype)
    return jnp.asarray(spread * like.shape[-2] ** -0.5, like.dtype)

  shapes = jax.eval_shape(init, jax.random.key(0), *inputs)
  return jax.tree_util.tree_map_with_path(draw, shapes)
