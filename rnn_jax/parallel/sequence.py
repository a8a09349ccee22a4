"""Sequence parallelism: each of n devices has a shard of L/n steps of a row.

A shard of the gated recurrence maps the state before it to

    S' = diag(A) S + C        A = prod_t a_t,   C = S' from a state of zeros

and two shards map it by (A2 A1, A2 C1 + C2). So devices send B H (K + K P)
numbers in log2 n rounds, whatever L is, and then each runs its own shard from
the state before it. The backward pass does the same from the other end: with
q~_t = q_t prod_{s<=t} a_s, the gradient E of the state after a shard becomes,
before it,

    E' = diag(A) E + R        R = sum_t q~_t dy_t^T

C and R are one matmul each, without a loop over the states; the recurrence
itself is run and differentiated once, between the true S and the true E.
Windows (of a convolution, of attention) come from the neighbors that they
extend to.

All functions are for the inside of a `jax.shard_map` over the mesh. They have
the contract of the op that they run, for a row of which a device has a shard:

  - the state given is that before the row, the same on all devices; the state
    returned is that after the row, the same on all devices
  - a gradient is that of the sum over devices of what each differentiates: the
    state returned counts on each device that uses it
  - the gradient of the state given is the sum over devices of its gradients

With one device along the axis they only run the op.
Source: Martin and Cundy, "Parallelizing Linear Recurrent Neural Nets over
Sequence Length", 2018.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax.ops import attention
from rnn_jax.ops import causal_convolution
from rnn_jax.ops import gla
from rnn_jax.ops import linear_scan as linear_scan_op
from rnn_jax.ops import positions
from rnn_jax.ops.attention import ring as attention_ring
from rnn_jax.parallel import axes
from rnn_jax.parallel import sequence_shards

ATTENTION = attention.Options()
BLOCK = 1024  # steps that are summarized at a time


def recurrence(
  state_BxHxKxP: jax.Array,
  q_BxLxGxK: jax.Array,
  k_BxLxGxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  rate_BxLxH: jax.Array | None = None,
  skip_H: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
  read: str = 'after',
  operands: str | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs `gla.recurrence` over a row, of which this device has a shard.

  Arguments and errors are those of `gla.recurrence`; L is the shard's.

  Returns:
    (state_BxHxKxP in float32 after the row, y_BxLxHxP of the shard in v's
    dtype).
  """
  inputs = state_BxHxKxP, q_BxLxGxK, k_BxLxGxK, v_BxLxHxP, loga_BxLxHxK
  run = functools.partial(
    gla.recurrence,
    impl=impl,
    chunk_length=chunk_length,
    read=read,
    operands=operands,
  )
  whole = functools.partial(
    run, starts_BxL=starts_BxL, rate_BxLxH=rate_BxLxH, skip_H=skip_H
  )
  if axes.size(sequence_shards.AXIS) == 1:
    return whole(*inputs)
  jax.eval_shape(whole, *inputs)  # refuses bad inputs
  state, loga = (x.astype(jnp.float32) for x in (state_BxHxKxP, loga_BxLxHxK))
  begins = None if starts_BxL is None else starts_BxL[..., None, None] != 0
  if begins is not None:
    loga = jnp.where(begins, -jnp.inf, loga)
  channels = gla.of_heads(*inputs[1:4], rate_BxLxH)
  state, y = _recurrence(run, read, state, *channels, loga)
  if begins is not None and read == 'before':
    y = jnp.where(begins, 0, y)
  return state, gla.with_skip(y, v_BxLxHxP, skip_H)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _recurrence(run, read, state, q, k, v, loga):
  return _forward(run, read, state, q, k, v, loga)[0]


def _forward(run, read, state, q, k, v, loga):
  del read  # what is written before a shard doesn't depend on it
  decay, written = sequence_shards.prefix(
    *_summarize(_written, (k, v, loga), 1), 1
  )
  entering = decay[..., None] * state + written
  (last, y), back = jax.vjp(run, entering, q, k, v, loga)
  return (sequence_shards.from_last(last), y), (back, q, loga)


def _backward(run, read, residuals, cotangents):
  del run
  back, q, loga = residuals
  d_last, d_y = cotangents
  seen = functools.partial(_seen, read=read)
  decay, d_seen = sequence_shards.prefix(
    *_summarize(seen, (q, d_y, loga), -1), -1
  )
  d_leaving = decay[..., None] * lax.psum(d_last, sequence_shards.AXIS) + d_seen
  d_entering, *d_inputs = back((d_leaving, d_y))
  # The row depends on the state before it through the first shard only.
  d_state = jnp.where(axes.index(sequence_shards.AXIS) == 0, d_entering, 0)
  return d_state, *d_inputs


_recurrence.defvjp(_forward, _backward)


def _written(k, v, loga):
  """Returns (A, C) of some steps."""
  later = jnp.pad(loga[:, 1:], [(0, 0), (0, 1), (0, 0), (0, 0)])
  decays = jnp.exp(lax.cumsum(later, 1, reverse=True))
  return _summary(k * decays, v, loga)


def _seen(q, d_y, loga, read):
  """Returns (A, R) of some steps."""
  upto = loga
  if read == 'before':
    upto = jnp.pad(loga[:, :-1], [(0, 0), (1, 0), (0, 0), (0, 0)])
  return _summary(q * jnp.exp(lax.cumsum(upto, 1)), d_y, loga)


def _summary(decayed_BxLxHxK, x_BxLxHxP, loga):
  B, _, H, K = decayed_BxLxHxK.shape
  add = jnp.einsum(
    'blhk,blhp->bhkp',
    decayed_BxLxHxK,
    x_BxLxHxP.astype(jnp.float32),
    precision=lax.Precision.HIGHEST,
  )
  return jnp.broadcast_to(jnp.exp(jnp.sum(loga, 1)), (B, H, K)), add


def _summarize(summary, arrays, direction):
  """Returns the summary of all steps, composed of those of blocks.

  So temporaries are as long as a block; `direction` as in `prefix`.
  """
  length = arrays[0].shape[1]
  blocks = -(-length // BLOCK)
  first = length - (blocks - 1) * BLOCK

  def block(begin, size):
    begin = begin if direction == 1 else length - begin - size
    return summary(
      *(lax.dynamic_slice_in_dim(x, begin, size, 1) for x in arrays)
    )

  def compose(n, so_far):
    decay_before, add_before = so_far
    decay, add = block(first + n * BLOCK, BLOCK)
    return decay * decay_before, decay[..., None] * add_before + add

  so_far = block(0, first)
  if blocks == 1:
    return so_far
  return lax.fori_loop(0, blocks - 1, compose, so_far)


def convolve(
  state: jax.Array,
  x_BxLxE: jax.Array,
  kernel_WxE: jax.Array,
  starts_BxL: jax.Array | None = None,
  bias_E: jax.Array | None = None,
  options: causal_convolution.Options = causal_convolution.PLAIN,
) -> tuple[jax.Array, jax.Array]:
  """Runs `causal_convolution.convolve` over a row; x is the shard's.

  Returns:
    (state after the row, y_BxLxE of the shard).
  """
  state = _inputs_before(state, x_BxLxE, starts_BxL)
  state, y = causal_convolution.convolve(
    state, x_BxLxE, kernel_WxE, starts_BxL, bias_E, options
  )
  return sequence_shards.from_last(state), y


def windows(
  state: jax.Array,
  x_BxLxE: jax.Array,
  taps: int,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs `causal_convolution.windows` over a row; x is the shard's.

  Returns:
    (state after the row, x_BxLxWxE of the shard).
  """
  state = _inputs_before(state, x_BxLxE, starts_BxL)
  state, x = causal_convolution.windows(state, x_BxLxE, taps, starts_BxL)
  return sequence_shards.from_last(state), x


def _inputs_before(state, x_BxLxE, starts_BxL):
  """Returns the inputs just before this shard, of its first document."""
  if axes.size(sequence_shards.AXIS) == 1:
    return state
  state = sequence_shards.steps_before(state.astype(x_BxLxE.dtype), x_BxLxE)
  same = sequence_shards.same_document(starts_BxL, state.shape[1])
  return jnp.where(same[..., None], state, 0)


def linear_scan(
  state_BxS: jax.Array,
  f_BxLxS: jax.Array,
  u_BxLxS: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs `linear_scan.recurrence` over a row, of which this device has a shard.

  A shard is run from zeros for its C, then from the state before it. Arguments
  and errors are those of `linear_scan.recurrence`; L is the shard's.

  Returns:
    (state_BxS in float32 after the row, h_BxLxS of the shard in u's dtype).
  """
  run = functools.partial(
    linear_scan_op.recurrence,
    starts_BxL=starts_BxL,
    impl=impl,
    chunk_length=chunk_length,
  )
  if axes.size(sequence_shards.AXIS) == 1:
    return run(state_BxS, f_BxLxS, u_BxLxS)
  state = state_BxS.astype(jnp.float32)
  written, _ = run(jnp.zeros_like(state), f_BxLxS, u_BxLxS)
  f = f_BxLxS.astype(jnp.float32)
  if starts_BxL is not None:
    f = jnp.where(starts_BxL[..., None] != 0, 0.0, f)
  # Each channel is a head with a state of one number.
  decay, add = sequence_shards.prefix(
    jnp.prod(f, 1)[..., None], written[..., None, None], 1
  )
  entering = decay[..., 0] * state + add[..., 0, 0]
  state, h = run(entering, f_BxLxS, u_BxLxS)
  return sequence_shards.from_last(state), h


def attend(
  cache: attention_ring.Cache,
  q_BxLxHxK: jax.Array,
  k_BxLxGxK: jax.Array,
  v_BxLxGxP: jax.Array,
  options: attention.Options = ATTENTION,
  starts_BxL: jax.Array | None = None,
) -> tuple[attention_ring.Cache, jax.Array]:
  """Runs `attention.attend` over a row; q, k and v are the shard's.

  A device gets the keys and values of the window before its shard, from the
  neighbors that the window extends to. Errors are those of `attention.attend`.

  Returns:
    (cache after the row, y_BxLxHxP of the shard in v's dtype).
  """
  if axes.size(sequence_shards.AXIS) > 1:
    run = functools.partial(attention.attend, options=options)
    new = q_BxLxHxK, k_BxLxGxK, v_BxLxGxP
    jax.eval_shape(run, cache, *new, starts_BxL=starts_BxL)  # refuses
    steps = lax.stop_gradient(cache.steps_B).astype(jnp.int32)
    steps_B, _ = sequence_shards.counts(steps, k_BxLxGxK.shape[1], starts_BxL)
    k, v = (
      sequence_shards.steps_before(attention_ring.in_order(old, steps), x)
      for old, x in ((cache.k_BxWxHxK, k_BxLxGxK), (cache.v_BxWxHxP, v_BxLxGxP))
    )
    cache = attention_ring.from_order(k, v, steps_B)
  cache, y = attention.attend(
    cache, q_BxLxHxK, k_BxLxGxK, v_BxLxGxP, options, starts_BxL
  )
  return sequence_shards.from_last(cache), y


def count(
  state_B: jax.Array, length: int, starts_BxL: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Runs `positions.count` over a row; the shard has `length` steps.

  Returns:
    (state_B after the row, position_BxL of the shard).
  """
  if axes.size(sequence_shards.AXIS) == 1:
    return positions.count(state_B, length, starts_BxL)
  here_B, end_B = sequence_shards.counts(state_B, length, starts_BxL)
  _, position_BxL = positions.count(here_B, length, starts_BxL)
  return end_B, position_BxL
