"""A matmul of 8-bit integers, with one scale per channel.

    s_x = max |x| / 127 of a row of x       x_8 = round(x / s_x)
    s_w = max |w| / 127 of a column of w    w_8 = round(w / s_w)
    y = s_x s_w sum x_8 w_8                 the sum is exact, in int32

A row of activations is one token, a column of weights one output channel. Zero
stays 0, and the range is symmetric.
Source: Jacob et al., "Quantization and Training of Neural Networks for
Efficient Integer-Arithmetic-Only Inference", 2018.
"""

import math

import jax
import jax.numpy as jnp

LARGEST = 127
LONGEST = (2**31 - 1) // LARGEST**2  # products that never overflow int32


def quantize(
  x: jax.Array, axes: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
  """Rounds an array to 8 bits, with one scale for all numbers along `axes`.

  Returns:
    (x_8, scale): int8, and float32 with size 1 along `axes`; x is scale * x_8
    to within half a scale. Where x isn't finite, the scale isn't either.
  """
  x = x.astype(jnp.float32)
  # XLA's maximum on a CPU may lose a NaN, but never an infinity.
  size = jnp.where(jnp.isnan(x), jnp.inf, jnp.abs(x))
  scale = jnp.max(size, axes, keepdims=True) / LARGEST
  scale = jnp.maximum(scale, jnp.finfo(jnp.float32).tiny)  # of all zeros
  return jnp.round(x / scale).astype(jnp.int8), scale


def dot_general(
  x: jax.Array, w: jax.Array, dimension_numbers: jax.lax.DotDimensionNumbers
) -> jax.Array:
  """Returns `lax.dot_general` of both factors rounded to 8 bits, float32.

  Its gradient is zero almost everywhere, as rounding's is: see
  `precision.dot_general` for a straight-through one.

  Raises:
    NotImplementedError: batch axes, or a sum that may overflow int32.
  """
  (x_axes, w_axes), batch = dimension_numbers
  if any(map(len, batch)):
    raise NotImplementedError('int8.dot_general has no batch axes')
  length = math.prod(x.shape[axis] for axis in x_axes)
  if length > LONGEST:
    raise NotImplementedError(
      f'a sum of {length} int8 products may overflow int32: contract '
      f'{LONGEST} at most'
    )
  x_8, x_scale = quantize(x, tuple(x_axes))
  w_8, w_scale = quantize(w, tuple(w_axes))
  y = jax.lax.dot_general(
    x_8, w_8, dimension_numbers, preferred_element_type=jnp.int32
  )
  x_free, w_free = x.ndim - len(x_axes), w.ndim - len(w_axes)
  x_scale = x_scale.reshape(*y.shape[:x_free], *[1] * w_free)
  w_scale = w_scale.reshape(*[1] * x_free, *y.shape[x_free:])
  return y.astype(jnp.float32) * x_scale * w_scale
