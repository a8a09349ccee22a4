"""y = x W for serving: weights in 32 to 4 bits, packed once, read every step.

    packed = products.pack(w_KxF, 'int8')
    y = products.multiply(x, packed)          x ...xK, y ...xF, float32

Writing text reads all weights for every token: what counts is their bytes. The
formats are those of `formats.FORMATS`.

    plain   W as float32 in XLA's product; any device
    native  C++ on a CPU. The numbers are read as they are stored; a row's bits
            are the same alone and among others, on any number of threads. In 8
            and 4 bits x is rounded to 16 bits with a scale for each row, and
            sums of integers are exact.

`multiply` has a gradient of x, none of W.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.ops import checks
from rnn_jax.ops.products import formats
from rnn_jax.ops.products import native as products_native

FORMATS = formats.FORMATS
lacking_native = products_native.lacking
IMPLS = ('auto', 'plain', 'native')


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=('arrays',),
  meta_fields=('format', 'impl', 'shape'),
)
@dataclasses.dataclass(frozen=True)
class Packed:
  """A matrix as one form reads it.

  Attributes:
    arrays: of numbers, and of scales unless they are floats; with leading axes
      if there are several matrices.
    format: one of FORMATS.
    impl: 'plain' or 'native'.
    shape: (K, F) of the matrix.
  """

  arrays: tuple[jax.Array, ...]
  format: str
  impl: str
  shape: tuple[int, int]

  @property
  def several(self) -> tuple[int, ...]:
    """The leading axes; () of one matrix."""
    own = products_native.AXES[self.format] if self.impl == 'native' else 2
    numbers = self.arrays[0]
    return numbers.shape[: numbers.ndim - own]

  @property
  def size(self) -> int:
    """The numbers of all matrices."""
    return math.prod((*self.several, *self.shape))


def pack(w_KxF: jax.Array, format: str, impl: str = 'auto') -> Packed:
  """Rounds a matrix to a format and lays it out for a form.

  Args:
    w_KxF: float32.
    format: one of FORMATS.
    impl: one of IMPLS. 'auto' is 'native' where it can run.

  Raises:
    ValueError: an unknown format or form, or `w_KxF` isn't a matrix.
    NotImplementedError: 'native' where it can't run.
  """
  checks.check_form(impl, IMPLS, None)
  formats.check(format)
  if w_KxF.ndim != 2 or not w_KxF.size:
    raise ValueError(f'w_KxF has shape {w_KxF.shape}: give a matrix')
  why = products_native.lacking()
  if impl == 'auto':
    impl = 'plain' if why else 'native'
  elif impl == 'native' and why:
    raise NotImplementedError(why)
  K, F = w_KxF.shape
  return Packed(_pack(w_KxF, format, impl), format, impl, (K, F))


def panels(w_KxF: jax.Array, format: str) -> Packed:
  """Returns `pack` for the native form, on a machine that may lack it."""
  K, F = w_KxF.shape
  return Packed(_pack(w_KxF, format, 'native'), format, 'native', (K, F))


def panels_like(shape: tuple[int, ...], format: str) -> Packed:
  """Returns the shapes and dtypes of `panels`.

  Args:
    shape: ...xKxF, of one matrix or several.
    format: one of FORMATS.
  """
  *several, K, F = shape
  arrays: Any = tuple(
    jax.ShapeDtypeStruct((*several, *x.shape), x.dtype)
    for x in products_native.shapes(format, K, F)
  )
  return Packed(arrays, format, 'native', (K, F))


def for_this_machine(packed: Packed) -> Packed:
  """Returns `panels` as they are, or for the plain form without the native."""
  if packed.impl == 'plain' or not products_native.lacking():
    return packed
  return _plain(jax.device_put(packed))


@jax.jit
def _plain(packed):
  if packed.several:
    return jax.vmap(_plain)(packed)
  arrays = tuple(x for x in _rounded(packed) if x is not None)
  return dataclasses.replace(packed, arrays=arrays, impl='plain')


@functools.partial(jax.jit, static_argnums=(1, 2))
def _pack(w_KxF, format, impl):
  rounded = formats.quantize(w_KxF, format)
  if impl == 'native':
    return products_native.pack(rounded, format)
  return tuple(x for x in rounded if x is not None)


@jax.jit
def unpack(packed: Packed) -> jax.Array:
  """Returns the matrix that `multiply` multiplies with, KxF in float32.

  Of several matrices, ...xKxF.
  """
  if packed.several:
    return jax.vmap(unpack)(packed)
  return formats.dequantize(_rounded(packed))


def take(packed: Packed, columns: jax.Array) -> jax.Array:
  """Returns columns of the matrix, ...xK in float32.

  Args:
    packed: of `pack`.
    columns: their indices, ..., from 0 to F - 1.
  """
  K, _ = packed.shape
  index_N = columns.reshape(-1)
  if packed.impl == 'native':
    own = packed.arrays, index_N, packed.format, K
    rows_NxK = products_native.take(*own)
  else:
    arrays = tuple(x[:, index_N] for x in packed.arrays)
    rows_NxK = formats.dequantize(formats.Rounded(*arrays)).T
  return rows_NxK.reshape(*columns.shape, K)


def multiply(x: jax.Array, packed: Packed) -> jax.Array:
  """Returns x W, ...xF in float32.

  Args:
    x: ...xK.
    packed: of `pack`.

  Raises:
    ValueError: the last axis of x isn't K.
  """
  K, F = packed.shape
  if x.ndim < 1 or x.shape[-1] != K:
    raise ValueError(f'x has shape {x.shape}: its last axis must be K={K}')
  y = _multiply(x.astype(jnp.float32).reshape(-1, K), packed)
  return y.reshape(*x.shape[:-1], F)


@jax.custom_vjp
def _multiply(x_BxK, packed):
  if packed.impl == 'native':
    own = packed.arrays, packed.format, packed.shape[1]
    return products_native.multiply(x_BxK, *own)
  return _dot(x_BxK, unpack(packed), 0)


def _forward(x_BxK, packed):
  return _multiply(x_BxK, packed), packed


def _backward(packed, d_y):
  return _dot(d_y, unpack(packed), 1), jax.tree.map(_no_gradient, packed)


_multiply.defvjp(_forward, _backward)


def _dot(x, w, axis):
  contract = ((1,), (axis,)), ((), ())
  return jax.lax.dot_general(
    x, w, contract, precision=jax.lax.Precision.HIGHEST
  )


def _no_gradient(x):
  if jnp.issubdtype(x.dtype, jnp.floating):
    return jnp.zeros_like(x)
  return jnp.zeros(x.shape, jax.dtypes.float0)


def _rounded(packed):
  if packed.impl == 'native':
    return products_native.unpack(packed.arrays, packed.format, packed.shape)
  return formats.Rounded(*packed.arrays)
