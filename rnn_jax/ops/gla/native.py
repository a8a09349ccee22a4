"""The gated linear recurrence in C++ on a CPU, forward and backward.

One pass over time for each row and head, with the state in the L1 cache. The
state before each segment of steps is stored; the backward pass runs a segment
again and goes back over it (equations: rnn_jax/native/gla.h). There are no
second derivatives.

Shapes: q, k BxLxHxK; v BxLxHxP, all float32 or all bfloat16; a BxLxHxK or
BxLxHx1, the decays themselves, float32; the state BxHxKxP, float32 or bfloat16,
which is rounded after the last step.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks

SEGMENT = 32  # steps between stored states, the fastest number


def lacking(dtype: jnp.dtype = jnp.float32) -> str:
  """Returns why this process can't run it on a dtype; '' if it can."""
  if dtype not in (jnp.float32, jnp.bfloat16):
    return f"impl='native' takes float32 or bfloat16, not {jnp.dtype(dtype)}"
  return checks.lacking_native()


def recurrence(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  read: str = 'after',
  segment: int = SEGMENT,
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time; see the module's docstring for shapes.

  Args:
    state: before the first step.
    q: the queries.
    k: the keys.
    v: the values.
    loga: log-decays, <= 0.
    read: 'after' or 'before' the update.
    segment: steps between stored states.

  Returns:
    (state in its dtype, y in v's).

  Raises:
    NotImplementedError: the library isn't available, the device isn't a CPU, or
      a second derivative is needed.
  """
  if why := lacking(v.dtype):
    raise NotImplementedError(why)
  options = _Options(read == 'before', segment)
  return _run(options, state, q, k, v, jnp.exp(loga))


class _Options(NamedTuple):
  """Attributes of the library calls."""

  read_before: bool
  segment: int


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(options, state, q, k, v, a):
  state, y, _ = _call_forward(options, False, state, q, k, v, a)
  return state, y


def _forward(options, state, q, k, v, a):
  state, y, kept = _call_forward(options, True, state, q, k, v, a)
  return (state, y), (kept, q, k, v, a)


def _backward(options, residuals, cotangents):
  d_last, d_y = cotangents
  d_state, *others = _call_backward(
    options, *residuals, d_last.astype(jnp.float32), d_y
  )
  return d_state.astype(d_last.dtype), *others


_run.defvjp(_forward, _backward)


@transforms.by_rows(static=2)
def _call_forward(options, keep, state, q, k, v, a):
  B, L, H, K = q.shape
  P = v.shape[-1]
  segments = -(-L // options.segment) if keep else 0
  results = (
    jax.ShapeDtypeStruct((B, H, K, P), state.dtype),
    jax.ShapeDtypeStruct(v.shape, v.dtype),
    jax.ShapeDtypeStruct((B, H, segments, K, P), jnp.float32),
  )
  inputs = state, q, k, v, a
  aliases = {} if keep else {0: 0}  # the state in place
  return library.call(
    'gla_forward', results, *inputs, aliases=aliases, **options._asdict()
  )


@transforms.by_rows(static=1)
def _call_backward(options, kept, q, k, v, a, d_state, d_y):
  B, _, H, K = q.shape
  state = jax.ShapeDtypeStruct((B, H, K, v.shape[-1]), jnp.float32)
  likes = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v, a))
  inputs = kept, q, k, v, a, d_state, d_y
  return library.call(
    'gla_backward', (state, *likes), *inputs, **options._asdict()
  )
