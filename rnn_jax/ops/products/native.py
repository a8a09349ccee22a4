"""Products with packed matrices in C++ on a CPU; rnn_jax/native/products.cc.

A matrix is packed in panels of 16 columns, each of which lies as it is read.
Numbers of 8 and 4 bits come in pairs, of rows k and k + 1; in 4 bits, a byte
has one of columns 0 to 7 in its lower half and one of columns 8 to 15, eight
further, in its upper half, and each number is stored 8 too large.

Shapes: x BxK, y BxF, float32. Numbers of a packed matrix:

    float32, bfloat16   F/16 x K x 16
    int8                F/16 x K/2 x 16 x 2, scales F/16 x 16
    int8_blocks         F/16 x K/32 x 16 x 16 x 2, scales F/16 x K/32 x 16
    int4                F/16 x K/32 x 16 x 16, the same scales
"""

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
from rnn_jax.ops.products import formats

COLUMNS = 16  # of a panel
TARGETS = {
  'float32': 'product_floats',
  'bfloat16': 'product_floats',
  'int8': 'product_int8',
  'int8_blocks': 'product_blocks',
  'int4': 'product_blocks',
}

# Axes of the numbers of one packed matrix.
AXES = {'float32': 3, 'bfloat16': 3, 'int8': 4, 'int8_blocks': 5, 'int4': 4}

lacking = checks.lacking_native


def pack(rounded: formats.Rounded, format: str) -> tuple[jax.Array, ...]:
  """Returns the arrays of a packed matrix; see the module's docstring."""
  numbers = _panels(rounded.numbers_KxF)  # F/16 x K x 16
  if rounded.scales is None:
    return (numbers,)
  block = formats.BLOCK if format in formats.BLOCKED else 2
  numbers = jnp.pad(numbers, ((0, 0), (0, -numbers.shape[1] % block), (0, 0)))
  panels, K, _ = numbers.shape
  pairs = numbers.reshape(panels, K // 2, 2, COLUMNS).swapaxes(2, 3)
  scales = _panels(rounded.scales)
  if format == 'int8':
    return pairs, scales[:, 0]
  pairs = pairs.reshape(panels, K // block, block // 2, COLUMNS, 2)
  if format == 'int8_blocks':
    return jax.lax.bitcast_convert_type(pairs, jnp.uint8), scales
  halves = pairs.reshape(*pairs.shape[:3], 2, COLUMNS).astype(jnp.uint8) + 8
  return halves[..., 0, :] | halves[..., 1, :] << 4, scales


def shapes(format: str, K: int, F: int) -> tuple[jax.ShapeDtypeStruct, ...]:
  """Returns the shapes and dtypes of the arrays of a packed matrix."""
  panels, blocks = -(-F // COLUMNS), -(-K // formats.BLOCK)
  half = formats.BLOCK // 2
  array = jax.ShapeDtypeStruct
  if format in ('float32', 'bfloat16'):
    return (array((panels, K, COLUMNS), jnp.dtype(format)),)
  if format == 'int8':
    numbers = panels, -(-K // 2), COLUMNS, 2
    scales = array((panels, COLUMNS), jnp.float32)
    return array(numbers, jnp.int8), scales
  pair = (2,) if format == 'int8_blocks' else ()
  numbers = panels, blocks, half, COLUMNS, *pair
  scales = array((panels, blocks, COLUMNS), jnp.float16)
  return array(numbers, jnp.uint8), scales


def unpack(
  packed: tuple[jax.Array, ...], format: str, shape: tuple[int, int]
) -> formats.Rounded:
  """Returns the matrix, the inverse of `pack`.

  Args:
    packed: its arrays.
    format: of them.
    shape: (K, F).
  """
  K, F = shape
  numbers, *scales = packed
  if not scales:
    return formats.Rounded(_columns(numbers)[:, :F])
  if format == 'int4':
    halves = jnp.stack((numbers & 15, numbers >> 4), -2).astype(jnp.int8) - 8
    numbers = halves.reshape(*numbers.shape, 2)
  elif format == 'int8_blocks':
    numbers = jax.lax.bitcast_convert_type(numbers, jnp.int8)
  numbers = numbers.reshape(numbers.shape[0], -1, COLUMNS, 2).swapaxes(2, 3)
  numbers = numbers.reshape(numbers.shape[0], -1, COLUMNS)
  own = scales[0] if format in formats.BLOCKED else scales[0][:, None]
  return formats.Rounded(_columns(numbers)[:K, :F], _columns(own)[:, :F])


def take(
  packed: tuple[jax.Array, ...], columns_N: jax.Array, format: str, K: int
) -> jax.Array:
  """Returns columns of the matrix, NxK in float32."""
  panels = tuple(x[columns_N // COLUMNS] for x in packed)
  shape = K, len(columns_N) * COLUMNS
  w_KxF = formats.dequantize(unpack(panels, format, shape))
  w_KxNx16 = w_KxF.reshape(K, -1, COLUMNS)
  at_1xNx1 = (columns_N % COLUMNS)[None, :, None]
  return jnp.take_along_axis(w_KxNx16, at_1xNx1, 2)[..., 0].T


def multiply(
  x_BxK: jax.Array, packed: tuple[jax.Array, ...], format: str, F: int
) -> jax.Array:
  """Returns y BxF; a row's bits don't depend on B or on threads.

  Raises:
    NotImplementedError: the library isn't available, or the device isn't a CPU.
  """
  if why := lacking():
    raise NotImplementedError(why)
  return _multiply(format, F, x_BxK, *packed)[0]


def _multiply(format, F, x, *packed):
  shared = tuple(range(1, 1 + len(packed)))

  @transforms.by_rows(static=0, shared=shared)
  def run(x, *packed):
    result = jax.ShapeDtypeStruct((x.shape[0], F), jnp.float32)
    return library.call(TARGETS[format], (result,), x, *packed)

  return run(x, *packed)


def _panels(x_NxF):
  """Returns F/16 x N x 16, filled up with zeros."""
  x = jnp.pad(x_NxF, ((0, 0), (0, -x_NxF.shape[1] % COLUMNS)))
  return x.reshape(x.shape[0], -1, COLUMNS).swapaxes(0, 1)


def _columns(panels):
  """Returns N x F of F/16 x N x 16."""
  return panels.swapaxes(0, 1).reshape(panels.shape[1], -1)
