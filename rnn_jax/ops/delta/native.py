"""The delta rule in C++ on a CPU, forward and backward; its general form too.

One pass over time for each row and head, with the state in the L1 cache: while
a step is written, the next one is read. The state before each segment of steps
is stored; the backward pass runs a segment again and goes back over it
(equations: rnn_jax/native/delta.h). There are no second derivatives.

Shapes: q, k, r, w BxLxHxK; v BxLxHxP; a BxLxHxK or BxLxHx1, the decays
themselves; beta BxLxH; the state BxHxKxP; all float32, but for the state, which
may be bfloat16 and is then rounded after the last step.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops.gla import native as gla_native

SEGMENT = 32  # steps between stored states

lacking = gla_native.lacking


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  a: jax.Array,
  others: tuple[jax.Array, ...],
  segment: int = SEGMENT,
) -> tuple[jax.Array, jax.Array]:
  """Runs either recurrence over time; see the module's docstring for shapes.

  Args:
    state: before the first step.
    q: the queries.
    k: the keys.
    v: the values.
    a: the decays.
    others: (beta,), or (r, w) of the general form.
    segment: steps between stored states.

  Returns:
    (state in its dtype, y in float32).

  Raises:
    NotImplementedError: the library isn't available, the device isn't a CPU, or
      derivatives of derivatives are needed.
  """
  if why := lacking():
    raise NotImplementedError(why)
  return _run(min(segment, q.shape[1]), state, q, k, v, a, *others)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(segment, state, *steps):
  state, y, _ = _call_forward(segment, False, state, *steps)
  return state, y


def _forward(segment, state, *steps):
  state, y, kept = _call_forward(segment, True, state, *steps)
  return (state, y), (kept, *steps)


def _backward(segment, residuals, cotangents):
  d_last, d_y = cotangents
  d_state, *others = _call_backward(
    segment, *residuals, d_last.astype(jnp.float32), d_y
  )
  return d_state.astype(d_last.dtype), *others


_run.defvjp(_forward, _backward)


def _kind(steps):
  return 'delta' if len(steps) == 5 else 'delta_general'


@transforms.by_rows(static=2)
def _call_forward(segment, keep, state, *steps):
  q, _, v, *_ = steps
  B, L, H, K = q.shape
  segments = -(-L // segment) if keep else 0
  results = (
    jax.ShapeDtypeStruct(state.shape, state.dtype),
    jax.ShapeDtypeStruct(v.shape, jnp.float32),
    jax.ShapeDtypeStruct((B, H, segments, K, v.shape[-1]), jnp.float32),
  )
  return library.call(
    f'{_kind(steps)}_forward',
    results,
    state,
    *steps,
    aliases={} if keep else {0: 0},  # the state in place
    segment=segment,
  )


@transforms.by_rows(static=1)
def _call_backward(segment, kept, *inputs):
  *steps, d_state, d_y = inputs
  likes = (
    jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in (d_state, *steps)
  )
  return library.call(
    f'{_kind(steps)}_backward',
    tuple(likes),
    kept,
    *inputs,
    segment=segment,
  )
