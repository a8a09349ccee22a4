"""Softmax cross-entropy of a linear head, without holding all its logits.

    z = cap(x W + b)   lse = log sum_v exp z_v        nats = lse - z_target
    loss = (1 - e) nats + e (lse - mean_v z_v) + c lse^2

with label smoothing e (Szegedy et al., "Rethinking the Inception Architecture
for Computer Vision", 2016) and z-loss c (Chowdhery et al., "PaLM", 2022).
cap(z) is z, or s tanh(z / s), which stays within s (Bello et al., "Neural
Combinatorial Optimization with Reinforcement Learning", 2016). Time is
processed in blocks of steps. The gradients of a block are computed in the
forward pass, together with its logits, so that neither pass holds more than
one block and no logit is computed twice. `Options.sparse` is for batches most
of whose steps have weight 0, as where only answers are predicted: the others
are moved to the front, and the loop over blocks ends with the last of them.

V may be sharded over devices (`Options.axis`): W and b are then a device's
columns, and the sums are the same on all of them. The gradient of x is a
partial sum: the caller adds it up over devices.

Shapes: x BxLxD, W DxV, b V, targets and weights BxL. Sums are float32.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import precision
from rnn_jax.system import target

BLOCK = {'cpu': 2**19}  # logits held at once: 2 MiB stay in a core's cache
BLOCK_ELSEWHERE = 2**25


@dataclasses.dataclass(frozen=True)
class Options:
  """What the loss is, and how it is computed."""

  label_smoothing: float = 0.0
  z_loss: float = 0.0
  operands: str = 'float32'  # format of the matmuls' factors
  block: int = 0  # logits held at once; 0: what suits the device
  axis: str = ''  # a mapped axis of devices that shards V, in equal parts
  cap: float = 0.0  # s; 0: none
  sparse: bool = False  # skips blocks of steps that all have weight 0


class Sums(NamedTuple):
  """Weighted sums over B and L. Only `loss` has gradients.

  With `Options.sparse`, what a step of weight 0 has of `right_BxL` and of the
  gradient of its weight has no meaning.
  """

  loss: jax.Array
  nats: jax.Array  # without smoothing and z-loss
  hits: jax.Array  # targets that no other logit exceeds
  right_BxL: jax.Array  # which ones these are, as 0 and 1


def sums(
  x_BxLxD: jax.Array,
  kernel_DxV: jax.Array,
  bias_V: jax.Array,
  targets_BxL: jax.Array,
  weights_BxL: jax.Array,
  options: Options = Options(),
) -> Sums:
  """Returns the Sums of a batch.

  Args:
    x_BxLxD: the head's inputs, of any float dtype.
    kernel_DxV: the head's matrix.
    bias_V: the head's bias.
    targets_BxL: int32 in [0, V).
    weights_BxL: 0 on padding.
    options: smoothing, z-loss, number format.

  Raises:
    ValueError: shapes disagree, or an option is out of range.
  """
  shapes.check(
    x_BxLxD=x_BxLxD,
    kernel_DxV=kernel_DxV,
    bias_V=bias_V,
    targets_BxL=targets_BxL,
    weights_BxL=weights_BxL,
  )
  if not 0 <= options.label_smoothing < 1:
    raise ValueError(
      f'label_smoothing={options.label_smoothing}: give a number in [0, 1)'
    )
  if min(options.z_loss, options.block, options.cap) < 0:
    raise ValueError(f'{options}: give 0 or more')
  batch = x_BxLxD, targets_BxL, weights_BxL
  if not options.sparse:
    x, targets, weights = batch
    return _sums(x, kernel_DxV, bias_V, targets, weights, options)
  order_N = jnp.argsort(weights_BxL.reshape(-1) == 0)
  x, targets, weights = (_ordered(array, order_N) for array in batch)
  result = _sums(x, kernel_DxV, bias_V, targets, weights, options)
  (right_N,) = result.right_BxL
  right_N = right_N.at[order_N].set(right_N, unique_indices=True)
  return result._replace(right_BxL=right_N.reshape(weights_BxL.shape))


def _ordered(array, order_N):
  """Returns the steps of BxL... as one row, in another order."""
  steps = jnp.asarray(array).reshape(-1, *array.shape[2:])
  return steps[None].at[:, order_N].get(mode='promise_in_bounds')


def cap(z_BxLxV: jax.Array, limit: float) -> jax.Array:
  """Returns s tanh(z / s) of logits, for a `limit` s; 0: the logits."""
  return limit * jnp.tanh(z_BxLxV / limit) if limit else z_BxLxV


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _sums(x, kernel, bias, targets, weights, options):
  def add(total, begin, length):
    part = _cut((x, targets, weights), begin, length)
    *_, values = _values(kernel, bias, part, options)
    return _added(total, values, part[2], begin)

  return _over_blocks(add, _zeros(weights), weights, kernel, options)


def _forward(x, kernel, bias, targets, weights, options):
  def add(carry, begin, length):
    # A block's gradient overwrites the block.
    total, d_x, d_kernel, d_bias, losses = carry
    part = _cut((d_x, targets, weights), begin, length)
    z, exponentials, values = _values(kernel, bias, part, options)
    d_z = _logit_gradients(z, exponentials, values, part, options)
    d_part = _dot(d_z, kernel, ((2,), (1,)), options)
    d_kernel = d_kernel + _dot(part[0], d_z, ((0, 1), (0, 1)), options)
    # Both read the block before it is overwritten: else XLA copies all of d_x.
    d_part = d_part + 0 * d_kernel[0, 0]
    put = jax.lax.dynamic_update_slice_in_dim
    return (
      _added(total, values, part[2], begin),
      put(d_x, d_part.astype(x.dtype), begin, 1),
      d_kernel,
      d_bias + jnp.sum(d_z, (0, 1)),
      put(losses, values.loss, begin, 1),
    )

  zeros = (
    _zeros(weights),
    x,
    jnp.zeros(kernel.shape, jnp.float32),
    jnp.zeros(bias.shape, jnp.float32),
    jnp.zeros(weights.shape, jnp.float32),
  )
  total, d_x, *rest = _over_blocks(add, zeros, weights, kernel, options)
  if options.sparse:
    d_x = jnp.where(weights[..., None] == 0, 0, d_x)  # else x, where skipped
  like = jnp.zeros(0, kernel.dtype), jnp.zeros(0, bias.dtype)
  return total, ((d_x, *rest), like, jnp.zeros(0, weights.dtype))


def _backward(options, residuals, cotangents):
  del options
  (d_x, d_kernel, d_bias, losses), (kernel, bias), weights = residuals
  scale = cotangents.loss
  return (
    (scale * d_x.astype(jnp.float32)).astype(d_x.dtype),
    (scale * d_kernel).astype(kernel.dtype),
    (scale * d_bias).astype(bias.dtype),
    None,
    (scale * losses).astype(weights.dtype),
  )


_sums.defvjp(_forward, _backward)


class _Values(NamedTuple):
  """For each step of a block."""

  loss: jax.Array
  nats: jax.Array
  hits: jax.Array
  lse: jax.Array
  denominator: jax.Array  # the sum of the exponentials below


def _values(kernel, bias, part, options):
  """Returns (logits in float32, exp of them less their largest, _Values)."""
  x, targets, _ = part
  z = _dot(x, kernel, ((2,), (0,)), options)
  z = cap(z + bias.astype(jnp.float32)[None, None], options.cap)
  axis, V = options.axis, z.shape[-1] * _shards(options)
  largest = jnp.max(z, -1)
  largest = jax.lax.pmax(largest, axis) if axis else largest
  exponentials = jnp.exp(z - largest[..., None])
  sums_V = {
    'denominator': jnp.sum(exponentials, -1),
    'target': _target_logits(z, targets, options),
  }
  if options.label_smoothing:
    sums_V['total'] = jnp.sum(z, -1)
  sums_V = jax.lax.psum(sums_V, axis) if axis else sums_V
  denominator, target = sums_V['denominator'], sums_V['target']
  lse = largest + jnp.log(denominator)
  loss = nats = lse - target
  if smoothing := options.label_smoothing:
    uniform = lse - sums_V['total'] / V
    loss = (1 - smoothing) * nats + smoothing * uniform
  if options.z_loss:
    loss = loss + options.z_loss * lse**2
  hits = (target >= largest).astype(jnp.float32)
  return z, exponentials, _Values(loss, nats, hits, lse, denominator)


def _shards(options):
  return jax.lax.axis_size(options.axis) if options.axis else 1


def _first(z, options):
  """Returns the index in V of this device's first logit."""
  if not options.axis:
    return 0
  return jax.lax.axis_index(options.axis) * z.shape[-1]


def _target_logits(z, targets, options):
  """Returns the targets' logits, 0 where another device has them."""
  if not options.axis:
    return jnp.take_along_axis(z, targets[..., None], -1)[..., 0]
  local = targets - _first(z, options)
  is_local = (local >= 0) & (local < z.shape[-1])
  local = jnp.where(is_local, local, 0)
  target = jnp.take_along_axis(z, local[..., None], -1)[..., 0]
  return jnp.where(is_local, target, 0.0)


def _logit_gradients(z, exponentials, values, part, options):
  """Returns the gradient of the block's weighted loss by x W + b."""
  _, targets, weights = part
  smoothing, V = options.label_smoothing, z.shape[-1] * _shards(options)
  factor = 1 / values.denominator
  if options.z_loss:
    factor = factor * (1 + 2 * options.z_loss * values.lse)
  probability = exponentials * factor[..., None]
  ids = _first(z, options) + jnp.arange(z.shape[-1])
  is_target = targets[..., None] == ids[None, None]
  wanted = jnp.where(is_target, 1 - smoothing, 0.0) + smoothing / V
  d_z = (probability - wanted) * weights.astype(jnp.float32)[..., None]
  return d_z * (1 - (z / options.cap) ** 2) if options.cap else d_z


def _added(total, values, weights, begin):
  """Returns the Sums with those of a block."""
  weights = weights.astype(jnp.float32)
  put = jax.lax.dynamic_update_slice_in_dim
  return Sums(
    total.loss + jnp.sum(weights * values.loss),
    total.nats + jnp.sum(weights * values.nats),
    total.hits + jnp.sum(weights * values.hits),
    put(total.right_BxL, values.hits, begin, 1),
  )


def _zeros(weights):
  zero = jnp.zeros((), jnp.float32)
  return Sums(zero, zero, zero, jnp.zeros(weights.shape, jnp.float32))


def _dot(x, w, contracted, options):
  return precision.dot(x, w, (contracted, ((), ())), options.operands)


def _cut(arrays, begin, length):
  cut = jax.lax.dynamic_slice_in_dim
  return tuple(cut(array, begin, length, 1) for array in arrays)


def _over_blocks(add, carry, weights, kernel, options):
  """Runs carry = add(carry, begin, length) over blocks of time."""
  B, L = weights.shape
  block = options.block or BLOCK.get(target.platform(), BLOCK_ELSEWHERE)
  longest = max(1, block // (B * kernel.shape[-1]))
  length = -(-L // -(-L // longest))  # the same number of blocks, balanced
  whole = needed = L // length
  if options.sparse:
    needed = jnp.minimum(whole, -(-jnp.count_nonzero(weights) // length))
  carry = jax.lax.fori_loop(
    0, needed, lambda n, carry: add(carry, n * length, length), carry
  )
  rest = L - whole * length
  return add(carry, whole * length, rest) if rest else carry
