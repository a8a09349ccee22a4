"""Softmax cross-entropy of a linear head, without holding all its logits.

    z = x W + b        lse = log sum_v exp z_v        nats = lse - z_target
    loss = (1 - e) nats + e (lse - mean_v z_v) + c lse^2

with label smoothing e (Szegedy et al., "Rethinking the Inception Architecture
for Computer Vision", 2016) and z-loss c (Chowdhery et al., "PaLM", 2022). The
steps of time are taken a block at a time. Where gradients are wanted, a
block's are computed while its logits are at hand, so that neither pass holds
more than a block and no logit is computed twice.

Devices may share V (`Options.axis`): W and b are then a device's columns, and
the sums the same on all of them. x's gradient is still to be added up.

Shapes: x BxLxD, W DxV, b V, targets and weights BxL. Sums are float32.
"""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import precision

BLOCK = {'cpu': 2**19}  # logits held at once: 2 MiB stay in a core's cache
BLOCK_ELSEWHERE = 2**25


@dataclasses.dataclass(frozen=True)
class Options:
  """What the loss is, and how it is computed."""

  label_smoothing: float = 0.0
  z_loss: float = 0.0
  operands: str = 'float32'  # format of the matmuls' factors
  block: int = 0  # logits held at once; 0: what suits the device
  axis: str = ''  # a mapped axis of devices that share V, in equal parts


class Sums(NamedTuple):
  """Weighted sums over B and L. Only `loss` has gradients."""

  loss: Any
  nats: Any  # without smoothing and z-loss
  hits: Any  # targets that no other logit exceeds


def sums(
  x_BxLxD,
  kernel_DxV,
  bias_V,
  targets_BxL,
  weights_BxL,
  options: Options = Options(),
) -> Sums:
  """Returns the Sums of a batch.

  Args:
    x_BxLxD: what the head reads, of any float format.
    kernel_DxV: the head's matrix.
    bias_V: the head's bias.
    targets_BxL: int32 in [0, V).
    weights_BxL: 0 on padding.
    options: smoothing, z-loss, number format.

  Raises:
    ValueError: shapes disagree, or an option is out of its range.
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
  if options.z_loss < 0 or options.block < 0:
    raise ValueError(f'{options}: give 0 or more')
  return _sums(x_BxLxD, kernel_DxV, bias_V, targets_BxL, weights_BxL, options)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _sums(x, kernel, bias, targets, weights, options):
  def add(total, begin, length):
    part = _cut((x, targets, weights), begin, length)
    z, values = _values(kernel, bias, part, options)
    del z
    return jax.tree.map(jnp.add, total, _total(values, part[2]))

  return _over_blocks(add, _zeros(), x, kernel, options)


def _forward(x, kernel, bias, targets, weights, options):
  def add(carry, begin, length):
    # A block's gradient is written where the block was read.
    total, d_x, d_kernel, d_bias, losses = carry
    part = _cut((d_x, targets, weights), begin, length)
    z, values = _values(kernel, bias, part, options)
    d_z = _slopes(z, values, part, options)
    d_part = _dot(d_z, kernel, ((2,), (1,)), options)
    d_kernel = d_kernel + _dot(part[0], d_z, ((0, 1), (0, 1)), options)
    # Both read the block before it is overwritten: else XLA copies all of d_x.
    d_part = d_part + 0 * d_kernel[0, 0]
    put = jax.lax.dynamic_update_slice_in_dim
    return (
      jax.tree.map(jnp.add, total, _total(values, part[2])),
      put(d_x, d_part.astype(x.dtype), begin, 1),
      d_kernel,
      d_bias + jnp.sum(d_z, (0, 1)),
      put(losses, values.loss, begin, 1),
    )

  zeros = (
    _zeros(),
    x,
    jnp.zeros(kernel.shape, jnp.float32),
    jnp.zeros(bias.shape, jnp.float32),
    jnp.zeros(weights.shape, jnp.float32),
  )
  total, *slopes = _over_blocks(add, zeros, x, kernel, options)
  like = jnp.zeros(0, kernel.dtype), jnp.zeros(0, bias.dtype)
  return total, (slopes, like, jnp.zeros(0, weights.dtype))


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
  """Of each step of a block."""

  loss: Any
  nats: Any
  hits: Any
  lse: Any


def _values(kernel, bias, part, options):
  """Returns (logits in float32, _Values)."""
  x, targets, _ = part
  z = _dot(x, kernel, ((2,), (0,)), options)
  z = z + bias.astype(jnp.float32)[None, None]
  axis, V = options.axis, z.shape[-1] * _shares(options)
  most = jnp.max(z, -1)
  most = jax.lax.pmax(most, axis) if axis else most
  found = {
    'denominator': jnp.sum(jnp.exp(z - most[..., None]), -1),
    'chosen': _chosen(z, targets, options),
  }
  if options.label_smoothing:
    found['total'] = jnp.sum(z, -1)
  found = jax.lax.psum(found, axis) if axis else found
  lse, chosen = most + jnp.log(found['denominator']), found['chosen']
  loss = nats = lse - chosen
  if smoothing := options.label_smoothing:
    even = lse - found['total'] / V
    loss = (1 - smoothing) * nats + smoothing * even
  if options.z_loss:
    loss = loss + options.z_loss * lse**2
  hits = (chosen >= most).astype(jnp.float32)
  return z, _Values(loss, nats, hits, lse)


def _shares(options):
  return jax.lax.axis_size(options.axis) if options.axis else 1


def _first(z, options):
  """The number of the first logit that this device has."""
  if not options.axis:
    return 0
  return jax.lax.axis_index(options.axis) * z.shape[-1]


def _chosen(z, targets, options):
  """The targets' logits, 0 for those of other devices."""
  if not options.axis:
    return jnp.take_along_axis(z, targets[..., None], -1)[..., 0]
  own = targets - _first(z, options)
  mine = (own >= 0) & (own < z.shape[-1])
  own = jnp.where(mine, own, 0)
  chosen = jnp.take_along_axis(z, own[..., None], -1)[..., 0]
  return jnp.where(mine, chosen, 0.0)


def _slopes(z, values, part, options):
  """The gradients of the block's weighted loss by its logits."""
  _, targets, weights = part
  smoothing, V = options.label_smoothing, z.shape[-1] * _shares(options)
  share = jnp.exp(z - values.lse[..., None])
  if options.z_loss:
    share = share * (1 + 2 * options.z_loss * values.lse)[..., None]
  ids = _first(z, options) + jnp.arange(z.shape[-1])
  chosen = targets[..., None] == ids[None, None]
  wanted = jnp.where(chosen, 1 - smoothing, 0.0) + smoothing / V
  return (share - wanted) * weights.astype(jnp.float32)[..., None]


def _total(values, weights):
  weights = weights.astype(jnp.float32)
  wanted = values.loss, values.nats, values.hits
  return Sums(*(jnp.sum(weights * value) for value in wanted))


def _zeros():
  return Sums(*[jnp.zeros((), jnp.float32)] * 3)


def _dot(x, w, contracted, options):
  return precision.dot(x, w, (contracted, ((), ())), options.operands)


def _cut(arrays, begin, length):
  cut = jax.lax.dynamic_slice_in_dim
  return tuple(cut(array, begin, length, 1) for array in arrays)


def _over_blocks(add, carry, x, kernel, options):
  """Runs carry = add(carry, begin, length) over blocks of time."""
  B, L, _ = x.shape
  block = options.block or BLOCK.get(jax.default_backend(), BLOCK_ELSEWHERE)
  most = max(1, block // (B * kernel.shape[-1]))
  length = -(-L // -(-L // most))  # the same number of blocks, balanced
  whole = L // length
  carry = jax.lax.fori_loop(
    0, whole, lambda n, carry: add(carry, n * length, length), carry
  )
  rest = L - whole * length
  return add(carry, whole * length, rest) if rest else carry
