"""Parameters and inputs in NumPy: jax compiles an operation for each shape."""

import jax
import numpy as np


def normal(*shape, seed=0):
  """Standard normal numbers in float32."""
  return np.float32(np.random.default_rng(seed).normal(size=shape))


def computed(make):
  """What `make()` returns, computed by one program."""
  return jax.device_get(jax.jit(make)())


def parameters(init, *inputs, seed=0):
  """What `init(key, *inputs)` makes, away from the zeros and ones of its start.

  Those would hide mistakes: a bias that is not added.
  """
  rng = np.random.default_rng(seed)

  def draw(path, like):
    name = path[-1].key
    matrix = len(like.shape) > 1 and not name.endswith('bias')
    spread = rng.normal(size=like.shape)
    spread *= like.shape[-2] ** -0.5 if matrix and name != 'scale' else 0.2
    return (spread + (name == 'scale')).astype(like.dtype)

  key = jax.eval_shape(lambda: jax.random.key(0))
  shapes = jax.eval_shape(init, key, *inputs)
  return jax.tree_util.tree_map_with_path(draw, shapes)
