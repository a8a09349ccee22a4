"""A matmul of 8-bit numbers, integers or floats, with one scale per channel.

    s_x = max |x| / most of a row of x       x_8 = round(x / s_x)
    s_w = max |w| / most of a column of w    w_8 = round(w / s_w)
    y = s_x s_w sum x_8 w_8

A row of activations is one token, a column of weights one output channel. Zero
stays 0, and the range is symmetric.

    'int8'  integers, most = 127; the sum is exact, in int32
    'fp8'   e4m3: 4 bits of exponent and 3 of mantissa, most = 448; products are
            exact, the sum is in float32

Scales are those of the numbers at hand. A history of maxima (delayed scaling)
saves reading them twice, but saturates when they grow, has to be kept with the
parameters, and makes a token's numbers depend on the steps before; and with one
scale for all rows, on the batch and on how devices split it. That, and
gradients in 8 bits, is what flax.linen.fp8_ops does.

GPUs of compute capability 8.9 or more multiply e4m3 numbers; elsewhere they are
multiplied as bfloat16, which holds all of them: the same products.
Sources: Jacob et al., "Quantization and Training of Neural Networks for
Efficient Integer-Arithmetic-Only Inference", 2018; Micikevicius et al., "FP8
Formats for Deep Learning", 2022.
"""

import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.system import target

ADA = (8, 9)  # the first compute capability of NVIDIA GPUs with e4m3 products


class Format(NamedTuple):
  """Numbers of 8 bits.

  Attributes:
    dtype: of the numbers.
    most: the largest one.
    sums: the dtype of sums of products.
  """

  dtype: Any
  most: int
  sums: Any


FORMATS = {
  'int8': Format(jnp.int8, 127, jnp.int32),
  'fp8': Format(jnp.float8_e4m3fn, 448, jnp.float32),
}
LONGEST = (2**31 - 1) // FORMATS['int8'].most ** 2  # never overflow int32


def quantize(
  x: jax.Array, axes: tuple[int, ...], kind: str = 'int8'
) -> tuple[jax.Array, jax.Array]:
  """Rounds an array to 8 bits, with one scale for all numbers along `axes`.

  Args:
    x: an array.
    axes: of x.
    kind: a key of FORMATS.

  Returns:
    (x_8, scale): 8-bit numbers, and float32 with size 1 along `axes`; x is
    scale * x_8, in int8 to within half a scale. Where x isn't finite, the scale
    isn't either.
  """
  x = x.astype(jnp.float32)
  own = FORMATS[kind]
  # XLA's maximum on a CPU may lose a NaN, but never an infinity.
  size = jnp.where(jnp.isnan(x), jnp.inf, jnp.abs(x))
  scale = jnp.max(size, axes, keepdims=True) / own.most
  scale = jnp.maximum(scale, jnp.finfo(jnp.float32).tiny)  # of all zeros
  x = x / scale
  return (jnp.round(x) if kind == 'int8' else x).astype(own.dtype), scale


def dot_general(
  x: jax.Array,
  w: jax.Array,
  dimension_numbers: jax.lax.DotDimensionNumbers,
  kind: str = 'int8',
) -> jax.Array:
  """Returns `lax.dot_general` of both factors rounded to 8 bits, float32.

  Its gradient is zero almost everywhere, as rounding's is: see
  `precision.dot_general` for a straight-through one.

  Args:
    x: an array.
    w: an array.
    dimension_numbers: of `lax.dot_general`.
    kind: a key of FORMATS.

  Raises:
    NotImplementedError: batch axes, or a sum that may overflow int32.
  """
  (x_axes, w_axes), batch = dimension_numbers
  if any(map(len, batch)):
    raise NotImplementedError('eight_bits.dot_general has no batch axes')
  length = math.prod(x.shape[axis] for axis in x_axes)
  if kind == 'int8' and length > LONGEST:
    raise NotImplementedError(
      f'a sum of {length} int8 products may overflow int32: contract '
      f'{LONGEST} at most'
    )
  x_8, x_scale = quantize(x, tuple(x_axes), kind)
  w_8, w_scale = quantize(w, tuple(w_axes), kind)
  if kind == 'fp8' and emulated(target.device()):
    x_8, w_8 = x_8.astype(jnp.bfloat16), w_8.astype(jnp.bfloat16)
  y = jax.lax.dot_general(
    x_8,
    w_8,
    dimension_numbers,
    precision=jax.lax.Precision.HIGHEST,  # GPUs may add e4m3 in fewer bits
    preferred_element_type=FORMATS[kind].sums,
  )
  x_free, w_free = x.ndim - len(x_axes), w.ndim - len(w_axes)
  x_scale = x_scale.reshape(*y.shape[:x_free], *[1] * w_free)
  w_scale = w_scale.reshape(*[1] * x_free, *y.shape[x_free:])
  return y.astype(jnp.float32) * x_scale * w_scale


def emulated(device: jax.Device) -> bool:
  """Returns whether a device multiplies e4m3 numbers as bfloat16."""
  capability = getattr(device, 'compute_capability', '').split('.')
  if not all(part.isdecimal() for part in capability):
    return True
  return tuple(map(int, capability)) < ADA
