"""Sequence parallelism: n devices hold a stretch of L/n steps of each row.

A stretch of the gated recurrence takes the state before it to

    S' = diag(A) S + C        A = prod_t a_t,   C = S' from a state of zeros

and (A, C) of one stretch behind another is (A2 A1, A2 C1 + C2). So devices tell
each other B H (K + K P) numbers in log2 n rounds, whatever L is, and then each
runs its own stretch from the state that enters it. The backward pass does the
same from the other end: with q~_t = q_t prod_{s<=t} a_s, the gradient E of the
state behind a stretch becomes before it

    E' = diag(A) E + R        R = sum_t q~_t dy_t^T

C and R are one matmul each, no pass over the states; the recurrence itself is
run and differentiated once, between the true S and the true E. Windows (of a
convolution, of attention) come from as many neighbours as they reach over.

All functions here are for the inside of a `jax.shard_map` over `axes`. They
have the contract of the op that they run, of a row whose stretch is given:

  - the state given is that before the row, the same on all devices; the state
    returned is that behind the row, the same on all devices
  - a gradient is that of the sum over the devices of what each differentiates:
    the state returned counts on each device that uses it
  - the sum over the devices of the gradients of the state given is its gradient

With one device along the axis they are the op, and no more.
Source: Martin and Cundy, "Parallelizing Linear Recurrent Neural Nets over
Sequence Length", 2018.
"""

import functools
from typing import NamedTuple

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

PIECE = 1024  # steps that are summed up at a time


def recurrence(
  state_BxHxKxP: jax.Array,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
  read: str = 'after',
) -> tuple[jax.Array, jax.Array]:
  """`gla.recurrence` of a row, of which this device holds a stretch.

  Args, errors: those of `gla.recurrence`; L is the stretch's.

  Returns:
    (state_BxHxKxP in float32 behind the row, y_BxLxHxP of the stretch in v's
    dtype).
  """
  inputs = state_BxHxKxP, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK
  options = _Options(impl, chunk_length, read)
  run = functools.partial(gla.recurrence, **options._asdict())
  if axes.size(sequence_shards.AXIS) == 1:
    return run(*inputs, starts_BxL=starts_BxL)
  jax.eval_shape(run, *inputs, starts_BxL=starts_BxL)  # refuses bad inputs
  state, loga = (x.astype(jnp.float32) for x in (state_BxHxKxP, loga_BxLxHxK))
  if starts_BxL is None:
    return _recurrence(options, state, *inputs[1:4], loga)
  begins = starts_BxL[..., None, None] != 0
  loga = jnp.where(begins, -jnp.inf, loga)
  state, y = _recurrence(options, state, *inputs[1:4], loga)
  return state, jnp.where(begins, 0, y) if read == 'before' else y


class _Options(NamedTuple):
  """Of gla.recurrence."""

  impl: str
  chunk_length: int | None
  read: str


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recurrence(options, state, q, k, v, loga):
  return _forward(options, state, q, k, v, loga)[0]


def _forward(options, state, q, k, v, loga):
  decay, written = sequence_shards.composed(
    *_summed(_written, (k, v, loga), 1), 1
  )
  entering = decay[..., None] * state + written
  run = functools.partial(gla.recurrence, **options._asdict())
  (last, y), back = jax.vjp(run, entering, q, k, v, loga)
  return (sequence_shards.of_last(last), y), (back, q, loga)


def _backward(options, kept, cotangents):
  back, q, loga = kept
  d_last, d_y = cotangents
  seen = functools.partial(_seen, read=options.read)
  decay, d_seen = sequence_shards.composed(
    *_summed(seen, (q, d_y, loga), -1), -1
  )
  d_leaving = decay[..., None] * lax.psum(d_last, sequence_shards.AXIS) + d_seen
  d_entering, *d_inputs = back((d_leaving, d_y))
  # All that the row makes of the state before it goes through the first.
  d_state = jnp.where(axes.index(sequence_shards.AXIS) == 0, d_entering, 0)
  return d_state, *d_inputs


_recurrence.defvjp(_forward, _backward)


def _written(k, v, loga):
  """(A, C) of some steps."""
  later = jnp.pad(loga[:, 1:], [(0, 0), (0, 1), (0, 0), (0, 0)])
  decays = jnp.exp(lax.cumsum(later, 1, reverse=True))
  return _summary(k * decays, v, loga)


def _seen(q, d_y, loga, read):
  """(A, R) of some steps."""
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


def _summed(summary, arrays, way):
  """The summary of all steps, made of those of pieces; `way` as in `composed`.

  What is as long as a piece of the row goes as soon as it is summed up.
  """
  length = arrays[0].shape[1]
  pieces = -(-length // PIECE)
  first = length - (pieces - 1) * PIECE

  def piece(begin, size):
    begin = begin if way == 1 else length - begin - size
    return summary(
      *(lax.dynamic_slice_in_dim(x, begin, size, 1) for x in arrays)
    )

  def more(n, so_far):
    earlier, before = so_far
    decay, add = piece(first + n * PIECE, PIECE)
    return decay * earlier, decay[..., None] * before + add

  so_far = piece(0, first)
  if pieces == 1:
    return so_far
  return lax.fori_loop(0, pieces - 1, more, so_far)


def convolve(
  state: jax.Array,
  x_BxLxE: jax.Array,
  kernel_WxE: jax.Array,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """`causal_convolution.convolve` of a row; its inputs are the stretch's.

  Returns:
    (state behind the row, y_BxLxE of the stretch).
  """
  state = _inputs_before(state, x_BxLxE, starts_BxL)
  state, y = causal_convolution.convolve(state, x_BxLxE, kernel_WxE, starts_BxL)
  return _behind_row(state), y


def windows(
  state: jax.Array,
  x_BxLxE: jax.Array,
  taps: int,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """`causal_convolution.windows` of a row; its inputs are the stretch's.

  Returns:
    (state behind the row, x_BxLxWxE of the stretch).
  """
  state = _inputs_before(state, x_BxLxE, starts_BxL)
  state, x = causal_convolution.windows(state, x_BxLxE, taps, starts_BxL)
  return _behind_row(state), x


def _inputs_before(state, x_BxLxE, starts_BxL):
  """The inputs just before this stretch, of its first step's document."""
  if axes.size(sequence_shards.AXIS) == 1:
    return state
  state = sequence_shards.before(state.astype(x_BxLxE.dtype), x_BxLxE)
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
  """`linear_scan.recurrence` of a row, of which this device holds a stretch.

  It is the recurrence above with diag(A) alone: a stretch is run from zeros for
  its C, then once more from the state that enters it.

  Args, errors: those of `linear_scan.recurrence`; L is the stretch's.

  Returns:
    (state_BxS in float32 behind the row, h_BxLxS of the stretch in u's dtype).
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
  decay, add = sequence_shards.composed(
    jnp.prod(f, 1)[..., None], written[..., None, None], 1
  )
  entering = decay[..., 0] * state + add[..., 0, 0]
  state, h = run(entering, f_BxLxS, u_BxLxS)
  return sequence_shards.of_last(state), h


def attend(
  cache: attention_ring.Cache,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  options: attention.Options,
  starts_BxL: jax.Array | None = None,
) -> tuple[attention_ring.Cache, jax.Array]:
  """`attention.attend` of a row; its inputs are the stretch's.

  A device gets the keys and values of the window before its stretch, from as
  many neighbours as that reaches over: with a window of all of the row, those
  of all devices before it.

  Returns:
    (cache behind the row, y_BxLxHxP of the stretch in v's dtype).

  Raises:
    ValueError, NotImplementedError: as `attention.attend`.
  """
  if axes.size(sequence_shards.AXIS) > 1:
    run = functools.partial(attention.attend, options=options)
    new = q_BxLxHxK, k_BxLxHxK, v_BxLxHxP
    jax.eval_shape(run, cache, *new, starts_BxL=starts_BxL)  # bad inputs
    steps = lax.stop_gradient(cache.steps_B).astype(jnp.int32)
    steps_B, _ = sequence_shards.counts(steps, k_BxLxHxK.shape[1], starts_BxL)
    k, v = (
      sequence_shards.before(attention_ring.in_order(old, steps), x)
      for old, x in ((cache.k_BxWxHxK, k_BxLxHxK), (cache.v_BxWxHxP, v_BxLxHxP))
    )
    cache = attention_ring.from_order(k, v, steps_B)
  cache, y = attention.attend(
    cache, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, options, starts_BxL
  )
  return _behind_row(cache), y


def count(
  state_B: jax.Array, length: int, starts_BxL: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """`positions.count` of a row, of `length` steps of it that are here.

  Returns:
    (state_B behind the row, position_BxL of the stretch).
  """
  if axes.size(sequence_shards.AXIS) == 1:
    return positions.count(state_B, length, starts_BxL)
  here_B, end_B = sequence_shards.counts(state_B, length, starts_BxL)
  _, position_BxL = positions.count(here_B, length, starts_BxL)
  return end_B, position_BxL


def _behind_row(state):
  return (
    state
    if axes.size(sequence_shards.AXIS) == 1
    else sequence_shards.of_last(state)
  )
