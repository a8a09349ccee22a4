"""Which number format holds activations, and which one enters a matmul.

A policy separates the two, since what helps differs by device. Units that
multiply bfloat16 and add in float32 (tensor cores, AMX) want 16-bit operands
everywhere; storing activations in 16 bits saves bandwidth on a GPU, but on a
CPU each elementwise operation then pays a conversion. Parameters, recurrent
states, gradients of parameters and the loss are float32 under every policy.
Source: Micikevicius et al., "Mixed Precision Training", 2018.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

ROWS = 2048  # of a weight's gradient at a time on a CPU


@dataclasses.dataclass(frozen=True)
class Policy:
  """Formats by role: `activations` are stored, `operands` are multiplied."""

  activations: jnp.dtype
  operands: jnp.dtype

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
    y = dot_general(x, w, dimension_numbers, self.operands)
    return y.astype(self.activations)


POLICIES = {
  'float32': Policy(jnp.float32, jnp.float32),
  'bfloat16': Policy(jnp.bfloat16, jnp.bfloat16),
  'bfloat16_operands': Policy(jnp.float32, jnp.bfloat16),
}


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def dot_general(x, w, dimension_numbers, operands):
  """A matmul of `operands`-format factors with a float32 sum.

  The backward pass rounds the incoming gradient to the same format and sums
  in float32 too, where autodiff of a mixed product would multiply in float32.
  """
  return dot(x, w, dimension_numbers, operands)


def dot(x, w, dimension_numbers, operands):
  """The matmul alone, whose gradient is left to autodiff."""
  exact = jnp.dtype(operands) == jnp.float32
  return jax.lax.dot_general(
    x.astype(operands),
    w.astype(operands),
    dimension_numbers,
    precision=jax.lax.Precision.HIGHEST if exact else None,
    preferred_element_type=jnp.float32,
  )


def _forward(x, w, dimension_numbers, operands):
  # The factors are kept as they are multiplied: half the memory in bfloat16.
  kept = x.astype(operands), w.astype(operands)
  dtypes = jnp.zeros((0,), x.dtype), jnp.zeros((0,), w.dtype)
  return dot(x, w, dimension_numbers, operands), (kept, dtypes)


def _backward(dimension_numbers, operands, residuals, dy):
  (x, w), (like_x, like_w) = residuals
  (x_axes, w_axes), (x_batch, w_batch) = dimension_numbers
  if x_batch or w_batch:
    raise NotImplementedError('precision.dot_general has no batch axes')
  dy = dy.astype(operands)
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
