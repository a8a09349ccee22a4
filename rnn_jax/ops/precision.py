"""Which number format holds activations, and which one enters a matmul.

A policy separates the two, since what helps differs by device. Units that
multiply 16 bits and add in float32 (tensor cores, AMX) want 16-bit operands
everywhere; storing activations in 16 bits saves bandwidth on a GPU, but on a
CPU each elementwise operation then pays a conversion. TensorFloat-32 is how a
GPU multiplies float32 with 10 bits of mantissa. Parameters, recurrent states,
gradients of parameters and the loss are float32 under every policy.

A quantized policy multiplies in `ops.int8` on the way forward; the backward
pass is that of the same matmul without it, a straight-through estimator.
Sources: Micikevicius et al., "Mixed Precision Training", 2018; Bengio et al.,
"Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
Computation", 2013.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from rnn_jax.ops import int8

ROWS = 2048  # of a weight's gradient at a time on a CPU
AMPERE = 8  # the compute capability from which NVIDIA's GPUs have TF32


@dataclasses.dataclass(frozen=True)
class Policy:
  """Formats by role: `activations` are stored, `operands` are multiplied."""

  activations: jnp.dtype
  operands: str  # a key of FORMATS
  quantized: str = ''  # or 'int8': of the forward pass

  def dot_general(
    self,
    x,
    w,
    dimension_numbers,
    precision=None,
    preferred_element_type=None,
    **_,
  ):
    """`lax.dot_general` under this policy, as linen's Dense calls it."""
    del precision, preferred_element_type
    y = dot_general(x, w, dimension_numbers, self.operands, self.quantized)
    return y.astype(self.activations)


# How factors are multiplied: their dtype, and lax's `precision`.
FORMATS = {
  'float32': (jnp.float32, jax.lax.Precision.HIGHEST),
  'tf32': (jnp.float32, jax.lax.DotAlgorithmPreset.TF32_TF32_F32),
  'bfloat16': (jnp.bfloat16, None),
  'float16': (jnp.float16, None),
}
POLICIES = {
  'float32': Policy(jnp.float32, 'float32'),
  'tf32': Policy(jnp.float32, 'tf32'),
  'bfloat16': Policy(jnp.bfloat16, 'bfloat16'),
  'bfloat16_operands': Policy(jnp.float32, 'bfloat16'),
  'float16': Policy(jnp.float16, 'float16'),
}


def policy(name, quantized=''):
  """Returns the Policy of that name, quantized or not."""
  return dataclasses.replace(POLICIES[name], quantized=quantized)


def lacking(operands, device):
  """Says why a jax.Device can't multiply `operands`; '' if it can."""
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def dot_general(x, w, dimension_numbers, operands, quantized=''):
  """A matmul of `operands`-format factors with a float32 sum.

  The backward pass rounds the incoming gradient to the same format and sums
  in float32 too, where autodiff of a mixed product would multiply in float32.
  With `quantized` the product itself, but no gradient, is one of int8.
  """
  return _product(x, w, dimension_numbers, operands, quantized)


def _product(x, w, dimension_numbers, operands, quantized):
  # Policies of jax.checkpoint see what lies here, not behind a custom_vjp.
  if quantized:
    return int8.dot_general(x, w, dimension_numbers)
  return dot(x, w, dimension_numbers, operands)


def dot(x, w, dimension_numbers, operands):
  """The matmul alone, whose gradient is left to autodiff."""
  dtype, how = FORMATS[operands]
  return jax.lax.dot_general(
    x.astype(dtype),
    w.astype(dtype),
    dimension_numbers,
    precision=how,
    preferred_element_type=jnp.float32,
  )


def _forward(x, w, dimension_numbers, operands, quantized):
  # The factors are kept as they are multiplied: half the memory in 16 bits.
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
  # dx carries w's contracted axes in rising order behind x's free ones.
  dx = _restore(dx, x_free, _paired(x_axes, w_axes))
  dw = _restore(dw, w_free, _paired(w_axes, x_axes), behind=True)
  return dx.astype(like_x.dtype), dw.astype(like_w.dtype)


def _weight_gradient(x, dy, x_free, operands):
  """x and dy multiplied over the free axes of x, which lead in dy."""
  count = len(x_free)
  rows = math.prod(dy.shape[:count])
  alone = x_free == list(range(count)) and (x.ndim, dy.ndim) == (count + 1,) * 2
  if jax.default_backend() != 'cpu' or not alone or rows % ROWS:
    return dot(x, dy, ((x_free, range(count)), ((), ())), operands)
  # XLA turns x around first, on a CPU: of many rows at once from far apart.
  x, dy = (a.reshape(-1, ROWS, a.shape[-1]) for a in (x, dy))
  parts = dot(x, dy, (((1,), (1,)), ((0,), (0,))), operands)
  return jnp.sum(jax.lax.optimization_barrier(parts), 0)


def _paired(axes, others):
  """The contracted axes, in the rising order of their partners."""
  return [a for _, a in sorted(zip(others, axes, strict=True))]


def _restore(array, free, contracted, behind=False):
  order = [*contracted, *free] if behind else [*free, *contracted]
  return jnp.transpose(array, [order.index(a) for a in range(array.ndim)])


dot_general.defvjp(_forward, _backward)
