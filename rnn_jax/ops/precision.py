"""Number formats: of stored activations, and of the operands of a matmul.

A policy separates the two, because what is fastest differs by device. Units
that multiply 16 bits and add in float32 (tensor cores, AMX) want 16-bit
operands everywhere. Storing activations in 16 bits saves bandwidth on a GPU,
but on a CPU every elementwise operation then pays for a conversion. With
TensorFloat-32 a GPU multiplies float32 with 10 bits of mantissa. Parameters,
gradients of parameters and the loss are float32 under every policy, and so are
recurrent states, unless decoding keeps those that are matrices in bfloat16
between two steps.

A recurrence's matmuls, in the forms that have some, have a format of their own,
one of RECURRENT; its states, decays and sums are float32. By default it is the
policy's on a GPU and float32 elsewhere, since a CPU gains nothing: it rounds
many small factors for short products.

A quantized policy multiplies in `ops.eight_bits` in the forward pass; the
backward pass is that of the unquantized matmul, a straight-through estimator.
Sources: Micikevicius et al., "Mixed Precision Training", 2018; Bengio et al.,
"Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
Computation", 2013.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.ops import eight_bits
from rnn_jax.system import target

ROWS = 8192  # rows of a weight gradient's partial sum on a CPU
AMPERE = 8  # the first compute capability of NVIDIA GPUs that has TF32


@dataclasses.dataclass(frozen=True)
class Policy:
  """Formats by role: `activations` are stored, `operands` are multiplied."""

  activations: jax.typing.DTypeLike
  operands: str  # a key of FORMATS
  quantized: str = ''  # or of eight_bits.FORMATS, in the forward pass
  recurrence: str = 'auto'  # one of OF_RECURRENCE, of its matmuls' operands
  states: str = 'float32'  # one of STATES, of the recurrences' matrices

  def of_recurrence(self, impl: str) -> str:
    """Returns the format of a recurrence's operands, one of RECURRENT.

    Args:
      impl: of the recurrence; forms without matmuls multiply in float32.
    """
    if impl not in MULTIPLYING:
      return 'float32'
    if self.recurrence != 'auto':
      return self.recurrence
    follows = target.platform() == 'gpu' and self.operands in RECURRENT
    return self.operands if follows else 'float32'

  def dot_general(
    self,
    x: jax.Array,
    w: jax.Array,
    dimension_numbers: jax.lax.DotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    **_: Any,
  ) -> jax.Array:
    """`lax.dot_general` under this policy, as linen's Dense calls it."""
    del precision, preferred_element_type
    y = dot_general(x, w, dimension_numbers, self.operands, self.quantized)
    return y.astype(self.activations)


# How factors are multiplied: their dtype, and lax's `precision`.
FORMATS: dict[str, tuple[jax.typing.DTypeLike, Any]] = {
  'float32': (jnp.float32, jax.lax.Precision.HIGHEST),
  'tf32': (jnp.float32, jax.lax.DotAlgorithmPreset.TF32_TF32_F32),
  'bfloat16': (jnp.bfloat16, None),
  'float16': (jnp.float16, None),
}
RECURRENT = ('float32', 'tf32', 'bfloat16')  # of float32's range
OF_RECURRENCE = ('auto', *RECURRENT)
STATES = ('float32', 'bfloat16')  # between two calls of a recurrence
MULTIPLYING = ('auto', 'chunked', 'pallas')  # forms of recurrences with matmuls
POLICIES = {
  'float32': Policy(jnp.float32, 'float32'),
  'tf32': Policy(jnp.float32, 'tf32'),
  'bfloat16': Policy(jnp.bfloat16, 'bfloat16'),
  'bfloat16_operands': Policy(jnp.float32, 'bfloat16'),
  'float16': Policy(jnp.float16, 'float16'),
}


def policy(name: str, quantized: str = '', recurrence: str = 'auto') -> Policy:
  """Returns a policy of POLICIES by name; the others as in Policy."""
  return dataclasses.replace(
    POLICIES[name], quantized=quantized, recurrence=recurrence
  )


def emulated(quantized: str, device: jax.Device) -> str:
  """Returns how a device computes what it can't multiply; '' if it can."""
  if quantized != 'fp8' or not eight_bits.emulated(device):
    return ''
  return (
    f'this device ({device.device_kind}) multiplies no 8-bit floats: rounded '
    'to e4m3, they are multiplied as bfloat16, the same products and no faster'
  )


def lacking(operands: str, device: jax.Device) -> str:
  """Returns why a device can't multiply `operands`; '' if it can."""
  if operands != 'tf32':
    return ''
  capability = getattr(device, 'compute_capability', '').partition('.')[0]
  if capability.isdecimal() and int(capability) >= AMPERE:
    return ''
  return (
    f'this device ({device.device_kind}) has no TensorFloat-32, which needs an '
    "NVIDIA GPU of compute capability 8.0 or more: use 'float32', or "
    "'bfloat16_operands' for 16-bit factors"
  )


def check_recurrent(
  operands: str, impl: str, multiplying: tuple[str, ...] = MULTIPLYING
) -> None:
  """Checks the operands of a recurrence.

  Args:
    operands: of its matmuls.
    impl: of the recurrence.
    multiplying: impls with such matmuls.

  Raises:
    ValueError: `operands` isn't one of RECURRENT.
    NotImplementedError: `impl` multiplies in float32.
  """
  if operands not in RECURRENT:
    raise ValueError(f'operands={operands!r}: choose one of {RECURRENT}')
  if operands != 'float32' and impl not in multiplying:
    raise NotImplementedError(
      f'operands={operands!r}: impl={impl!r} multiplies in float32: use one of '
      f"{multiplying}, or operands='float32'"
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def dot_general(
  x: jax.Array,
  w: jax.Array,
  dimension_numbers: jax.lax.DotDimensionNumbers,
  operands: str,
  quantized: str = '',
) -> jax.Array:
  """Returns `lax.dot_general` of factors in a format, with float32 sums.

  The backward pass rounds the incoming gradient to the same format and sums in
  float32 as well; autodiff of a mixed product would multiply in float32. With
  `quantized` the forward product is in 8 bits, and the gradients aren't.

  Args:
    x: an array.
    w: an array.
    dimension_numbers: of `lax.dot_general`; gradients need ones without batch
      axes.
    operands: a key of FORMATS.
    quantized: '' or a key of eight_bits.FORMATS.

  Raises:
    NotImplementedError: in the backward pass or in 8 bits, batch axes.
  """
  return _product(x, w, dimension_numbers, operands, quantized)


def _product(x, w, dimension_numbers, operands, quantized):
  # Policies of jax.checkpoint see this product, not one inside a custom_vjp.
  if quantized:
    return eight_bits.dot_general(x, w, dimension_numbers, quantized)
  return dot(x, w, dimension_numbers, operands)


def dot(
  x: jax.Array,
  w: jax.Array,
  dimension_numbers: jax.lax.DotDimensionNumbers,
  operands: str,
) -> jax.Array:
  """Returns the same product, with a gradient by autodiff."""
  dtype, how = FORMATS[operands]
  return jax.lax.dot_general(
    x.astype(dtype),
    w.astype(dtype),
    dimension_numbers,
    precision=how,
    preferred_element_type=jnp.float32,
  )


def _forward(x, w, dimension_numbers, operands, quantized):
  # Residuals in the format of the product: half the memory in 16 bits.
  dtype, _ = FORMATS[operands]
  kept = x.astype(dtype), w.astype(dtype)
  dtypes = jnp.zeros((0,), x.dtype), jnp.zeros((0,), w.dtype)
  y = _product(x, w, dimension_numbers, operands, quantized)
  return y, (kept, dtypes)


def _backward(dimension_numbers, operands, quantized, residuals, dy):
  del quantized  # straight through
  (x, w), (like_x, like_w) = residuals
  (x_axes, w_axes), (x_batch, w_batch) = dimension_numbers
  if x_batch or w_batch:
    raise NotImplementedError('precision.dot_general has no batch axes')
  dy = dy.astype(FORMATS[operands][0])
  x_free = [a for a in range(x.ndim) if a not in x_axes]
  w_free = [a for a in range(w.ndim) if a not in w_axes]
  dx = dot(dy, w, ((range(len(x_free), dy.ndim), w_free), ((), ())), operands)
  dw = _weight_gradient(x, dy, x_free, operands)
  # dx has x's free axes first, then w's contracted ones in ascending order.
  dx = _restore(dx, x_free, _paired(x_axes, w_axes))
  dw = _restore(dw, w_free, _paired(w_axes, x_axes), free_last=True)
  return dx.astype(like_x.dtype), dw.astype(like_w.dtype)


def _weight_gradient(x, dy, x_free, operands):
  """Multiplies x and dy over the free axes of x, which are dy's first ones."""
  count = len(x_free)
  is_dense = x_free == [*range(count)] and (x.ndim, dy.ndim) == (count + 1,) * 2
  if is_dense:
    return weight_gradient(x, dy, operands)
  return dot(x, dy, ((x_free, range(count)), ((), ())), operands)


def weight_gradient(x: jax.Array, dy: jax.Array, operands: str) -> jax.Array:
  """Returns x^T dy, DxF in float32, summed over all axes but the last.

  Args:
    x: ...xD.
    dy: ...xF.
    operands: a key of FORMATS.
  """
  leading = list(range(x.ndim - 1))
  rows = math.prod(x.shape[:-1])
  if target.platform() != 'cpu' or rows % ROWS:
    return dot(x, dy, ((leading, leading), ((), ())), operands)
  # On a CPU, XLA transposes x first, with slow strided reads over many rows.
  x, dy = (a.reshape(-1, ROWS, a.shape[-1]) for a in (x, dy))
  parts = dot(x, dy, (((1,), (1,)), ((0,), (0,))), operands)
  return jnp.sum(jax.lax.optimization_barrier(parts), 0)


def _paired(axes, others):
  """Returns the contracted axes, in the ascending order of their partners."""
  return [a for _, a in sorted(zip(others, axes, strict=True))]


def _restore(array, free, contracted, free_last=False):
  order = [*contracted, *free] if free_last else [*free, *contracted]
  return jnp.transpose(array, [order.index(a) for a in range(array.ndim)])


dot_general.defvjp(_forward, _backward)


def einsum(spec: str, x: jax.Array, y: jax.Array, operands: str) -> jax.Array:
  """Returns `jnp.einsum` of two factors in a format, with float32 sums.

  The backward pass rounds the incoming gradient to the same format. 'tf32' has
  its errors on every device: where none has it, `cut` comes before the product.

  Args:
    spec: of jnp.einsum; an axis of x or y is the other's, or the result's.
    x: an array.
    y: an array.
    operands: a key of FORMATS.
  """
  x, y = (factor.astype(jnp.float32) for factor in (x, y))
  if operands == 'float32':
    return jnp.einsum(spec, x, y, precision=jax.lax.Precision.HIGHEST)
  return _einsum(spec, operands, x, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _einsum(spec, operands, x, y):
  return _einsum_forward(spec, operands, x, y)[0]


def _einsum_forward(spec, operands, x, y):
  factors = _rounded(x, operands), _rounded(y, operands)
  return _einsum_product(spec, operands, *factors), factors


def _einsum_backward(spec, operands, factors, d):
  axes, out = spec.split('->')
  x_axes, y_axes = axes.split(',')
  x, y = factors
  d = _rounded(d, operands)
  d_x = _einsum_product(f'{out},{y_axes}->{x_axes}', operands, d, y)
  d_y = _einsum_product(f'{x_axes},{out}->{y_axes}', operands, x, d)
  return d_x, d_y


_einsum.defvjp(_einsum_forward, _einsum_backward)


def _einsum_product(spec, operands, x, y):
  how = FORMATS[operands][1]
  if operands == 'tf32' and target.platform() != 'gpu':
    how = jax.lax.Precision.HIGHEST
  return jnp.einsum(
    spec, x, y, precision=how, preferred_element_type=jnp.float32
  )


def _rounded(x, operands):
  if operands == 'tf32' and target.platform() != 'gpu':
    return cut(x)
  return x.astype(FORMATS[operands][0])


def cut(x: jax.Array) -> jax.Array:
  """Returns float32 numbers with TF32's 10 bits of mantissa, others cut off.

  So tensor cores read float32; a library that rounds first is more exact.
  """
  bits = jax.lax.bitcast_convert_type(x, jnp.int32) & jnp.int32(-(2**13))
  return jax.lax.bitcast_convert_type(bits, jnp.float32)
