"""Rotary positions: channels in pairs, turned by angles that grow with time.

    (x_i, x_{i+K/2}) turned by the angle  p base^(-2i/K)        i < K/2

or, of neighbours, (x_{2i}, x_{2i+1}) by the same angle.

Of two vectors turned so, the product depends on the difference of their
positions p alone. So p may be counted from anywhere that both share: from the
first key of a row, or backwards from a query. Angles are counted in parts of
2^32 to a turn, in whole numbers that wrap around where the circle does, so that
this holds to the last digit however large p is.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021.
"""

import functools

import jax.numpy as jnp
import numpy as np


def turn(x_BxLxHxK, position_BxL, base):
  """Returns x turned, float32. Positions are integers, their B may be 1.

  K is even; base is above 1.
  """
  half = x_BxLxHxK.shape[-1] // 2
  cos, sin = (t[:, :, None] for t in angles(position_BxL, half, base))
  a, b = jnp.split(x_BxLxHxK.astype(jnp.float32), 2, -1)
  return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def turn_neighbours(x_BxLxHxK, cos_BxLxK, sin_BxLxK):
  """Returns x with its neighbours turned, float32.

  The cosines and sines are of K/2 angles each, as of `angles` or `table`;
  their B may be 1.
  """
  pairs = x_BxLxHxK.astype(jnp.float32)
  pairs = pairs.reshape(*pairs.shape[:-1], -1, 2)
  a, b = pairs[..., 0], pairs[..., 1]
  cos, sin = cos_BxLxK[:, :, None], sin_BxLxK[:, :, None]
  turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], -1)
  return turned.reshape(x_BxLxHxK.shape)


def angles(position_BxL, half, base):
  """Returns the (cosines, sines) of `half` angles at each position, float32,
  BxLx`half`."""
  parts = np.round(_turns(half, base) * 2.0**32).astype(np.uint32)
  angle = position_BxL.astype(jnp.uint32)[..., None] * parts[None, None]
  # From -pi to pi: most digits where they are needed.
  angle = angle.astype(jnp.int32).astype(jnp.float32) * (2 * np.pi / 2**32)
  return jnp.cos(angle), jnp.sin(angle)


@functools.cache
def table(length, half, base):
  """Returns `angles` of the positions 0 to `length` - 1, 1xLx`half`.

  They are made once, by NumPy in float64, and are constants of a program.
  """
  turns = np.arange(length)[None, :, None] * _turns(half, base)
  angle = 2 * np.pi * (turns % 1)
  return tuple(f(angle).astype(np.float32) for f in (np.cos, np.sin))


def _turns(half, base):
  """Of a whole circle, what each angle is a position."""
  return base ** (-np.arange(half) / half) / (2 * np.pi)
