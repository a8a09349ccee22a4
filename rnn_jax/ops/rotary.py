"""Rotary positions: pairs of channels, rotated by angles that grow with time.

    (x_i, x_{i+K/2}) rotated by the angle  p base^(-2i/K)        i < K/2

or, for neighbours, (x_{2i}, x_{2i+1}) by the same angle. Where only some
channels are rotated, K is their number, and the others stay as they are.

A model reaches beyond the rows of its training if its angles grow more slowly:
a scaling (f,) divides all by f, and (f, low, high, length) those only of pairs
that turn less than `low` times in `length` positions; a pair that turns more
than `high` times keeps its angle, and between these the share that is divided
falls linearly. With (f, low, high, length, size), as in YaRN's code, it falls
linearly with i, between whole i, and the rotated channels are multiplied by
`size`: a longer row needs a sharper softmax.

The inner product of two rotated vectors depends only on the difference of their
positions p. So p may be counted from any common origin: the first key of a row,
or backwards from a query. Angles are integers in units of 2^-32 turns, which
wrap around where the circle does, so that this is exact however large p is.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021; Chen et al., "Extending Context Window of Large Language
Models via Positional Interpolation", 2023; Grattafiori et al., "The Llama 3
Herd of Models", 2024; Peng et al., "YaRN: Efficient Context Window Extension of
Large Language Models", 2023.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def rotate(
  x_BxLxHxK: jax.Array,
  position_BxL: jax.Array,
  base: float,
  rotated: int = 0,
  scaling: tuple[float, ...] = (),
) -> jax.Array:
  """Returns x rotated, BxLxHxK in float32.

  Args:
    x_BxLxHxK: vectors.
    position_BxL: integers; their B may be 1.
    base: above 1.
    rotated: how many of the first channels are rotated, an even number; 0: all.
    scaling: (), (f,), (f, low, high, length) or (f, low, high, length, size);
      see the module's docstring.
  """
  x = x_BxLxHxK.astype(jnp.float32)
  width = rotated or x.shape[-1]
  rest = [x[..., width:]] if width < x.shape[-1] else []
  tables = angles(position_BxL, width // 2, base, scaling)
  cos, sin = (table[:, :, None] for table in tables)
  a, b = jnp.split(x[..., :width], 2, -1)
  return jnp.concatenate([a * cos - b * sin, a * sin + b * cos, *rest], -1)


def rotate_neighbours(
  x_BxLxHxK: jax.Array,
  cos_BxLxK: jax.Array | np.ndarray,
  sin_BxLxK: jax.Array | np.ndarray,
) -> jax.Array:
  """Returns x with neighbouring channels rotated, BxLxHxK in float32.

  Args:
    x_BxLxHxK: vectors.
    cos_BxLxK: cosines of up to K/2 angles, of `angles` or `table`; their B may
      be 1. BxLxHxK: of each head. Channels without an angle aren't rotated.
    sin_BxLxK: their sines.
  """
  cos, sin = (
    table if table.ndim == 4 else table[:, :, None]
    for table in (cos_BxLxK, sin_BxLxK)
  )
  x = x_BxLxHxK.astype(jnp.float32)
  width = 2 * cos.shape[-1]
  rest = [x[..., width:]] if width < x.shape[-1] else []
  pairs = x[..., :width].reshape(*x.shape[:-1], -1, 2)
  a, b = pairs[..., 0], pairs[..., 1]
  rotated = jnp.stack([a * cos - b * sin, a * sin + b * cos], -1)
  return jnp.concatenate([rotated.reshape(*x.shape[:-1], width), *rest], -1)


def angles(
  position_BxL: jax.Array,
  half: int,
  base: float,
  scaling: tuple[float, ...] = (),
) -> tuple[jax.Array, jax.Array]:
  """Returns the (cosines, sines) of `half` angles at each position.

  Both are BxLx`half` in float32, times the size of the scaling. Positions are
  integers.
  """
  parts = np.round(_turns(half, base, scaling) * 2.0**32).astype(np.uint32)
  angle = position_BxL.astype(jnp.uint32)[..., None] * parts[None, None]
  # From -pi to pi, where float32 has the most digits.
  angle = angle.astype(jnp.int32).astype(jnp.float32) * (2 * np.pi / 2**32)
  cos, sin = jnp.cos(angle), jnp.sin(angle)
  return (scaling[4] * cos, scaling[4] * sin) if scaling[4:] else (cos, sin)


@functools.cache
def table(length: int, half: int, base: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns `angles` of the positions 0 to `length` - 1, 1xLx`half`.

  NumPy computes them once in float64; they are constants of a program.
  """
  turns = np.arange(length)[None, :, None] * _turns(half, base)
  angle = 2 * np.pi * (turns % 1)
  return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _turns(half, base, scaling=()):
  """Returns the turns per position of each angle, float64."""
  turns = base ** (-np.arange(half) / half) / (2 * np.pi)
  if not scaling:
    return turns
  factor, *band = scaling
  kept = 0.0
  if len(band) == 3:
    low, high, length = band
    kept = np.clip((length * turns - low) / (high - low), 0, 1)
  elif band:
    low, high, length, _ = band
    # Where a pair turns so many times in `length`.
    ends = np.log(length * turns[0] / np.array([high, low])) / np.log(base)
    first = max(np.floor(half * ends[0]), 0)
    last = min(np.ceil(half * ends[1]), 2 * half - 1)
    kept = np.clip((last - np.arange(half)) / (last - first or 1e-3), 0, 1)
  return turns * (kept + (1 - kept) / factor)
