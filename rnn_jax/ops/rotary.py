"""Rotary positions: channels in pairs, turned by angles that grow with time.

    (x_i, x_{i+K/2}) turned by the angle  p base^(-2i/K)        i < K/2

Of two vectors turned so, the product depends on the difference of their
positions p alone. So p may be counted from anywhere that both share: from the
first key of a block, or backwards from a query. Small angles keep their digits.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021.
"""

import jax.numpy as jnp


def turn(x_BxLxHxK, position_BxL, base):
  """Returns x turned, float32. The positions' B may be 1; K is even."""
  half = x_BxLxHxK.shape[-1] // 2
  frequency = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
  angle = position_BxL.astype(jnp.float32)[..., None] * frequency[None, None]
  cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
  a, b = jnp.split(x_BxLxHxK.astype(jnp.float32), 2, -1)
  return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
