"""Rotary positions: channels in pairs, turned by angles that grow with time.

    (x_i, x_{i+K/2}) turned by the angle  p base^(-2i/K)        i < K/2

Of two vectors turned so, the product depends on the difference of their
positions p alone. So p may be counted from anywhere that both share: from the
first key of a row, or backwards from a query. Angles are counted in parts of
2^32 to a turn, in whole numbers that wrap around where the circle does, so that
this holds to the last digit however large p is.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021.
"""

import jax.numpy as jnp
import numpy as np


def turn(x_BxLxHxK, position_BxL, base):
  """Returns x turned, float32. Positions are integers, their B may be 1.

  K is even; base is above 1.
  """
  half = x_BxLxHxK.shape[-1] // 2
  turns = base ** (-np.arange(half) / half) / (2 * np.pi)
  parts = np.round(turns * 2.0**32).astype(np.uint32)
  angle = position_BxL.astype(jnp.uint32)[..., None] * parts[None, None]
  # From -pi to pi: most digits where they are needed.
  angle = angle.astype(jnp.int32).astype(jnp.float32) * (2 * np.pi / 2**32)
  cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
  a, b = jnp.split(x_BxLxHxK.astype(jnp.float32), 2, -1)
  return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
