"""The gated linear recurrence in C++ on a CPU, forward and backward.

One pass over time for each row and head, with the state in the first cache.
The backward pass has the state before each stretch of steps; it runs one again
and walks back over it (rnn_jax/native/gla.h has the equations). The
gradients have none themselves.

Shapes: q, k BxLxHxK; v BxLxHxP, all float32 or all bfloat16; a BxLxHxK or
BxLxHx1, the decays themselves; the state BxHxKxP; a and the state float32.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms

STRETCH = 32  # steps between kept states: what is fastest


def lacking(dtype: jnp.dtype = jnp.float32) -> str:
  """Says why this process can't run it for inputs of `dtype`; '' if it can."""
  if jax.default_backend() != 'cpu':
    return f"impl='native' is for a CPU, not for a {jax.default_backend()}"
  if dtype not in (jnp.float32, jnp.bfloat16):
    return f"impl='native' takes float32 or bfloat16, not {jnp.dtype(dtype)}"
  return library.lacking()


def recurrence(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  read: str = 'after',
  stretch: int = STRETCH,
) -> tuple[jax.Array, jax.Array]:
  """Returns (state in float32, y in v's dtype); see the module's docstring.

  Raises:
    NotImplementedError: there is no library here, the device is not a CPU, or
      a gradient of a gradient is asked for.
  """
  if why := lacking(v.dtype):
    raise NotImplementedError(why)
  options = _Options(read == 'before', stretch)
  return _run(options, state, q, k, v, jnp.exp(loga))


class _Options(NamedTuple):
  """Attributes of the calls."""

  read_before: bool
  stretch: int


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(options, state, q, k, v, a):
  state, y, _ = _call_forward(options, False, state, q, k, v, a)
  return state, y


def _forward(options, state, q, k, v, a):
  state, y, kept = _call_forward(options, True, state, q, k, v, a)
  return (state, y), (kept, q, k, v, a)


def _backward(options, residuals, cotangents):
  return _call_backward(options, *residuals, *cotangents)


_run.defvjp(_forward, _backward)


@transforms.by_rows(static=2)
def _call_forward(options, keep, state, q, k, v, a):
  B, L, H, K = q.shape
  P = v.shape[-1]
  stretches = -(-L // options.stretch) if keep else 0
  results = (
    jax.ShapeDtypeStruct((B, H, K, P), jnp.float32),
    jax.ShapeDtypeStruct(v.shape, v.dtype),
    jax.ShapeDtypeStruct((B, H, stretches, K, P), jnp.float32),
  )
  inputs = state, q, k, v, a
  return library.call('gla_forward', results, *inputs, **options._asdict())


@transforms.by_rows(static=1)
def _call_backward(options, kept, q, k, v, a, d_state, d_y):
  B, _, H, K = q.shape
  state = jax.ShapeDtypeStruct((B, H, K, v.shape[-1]), jnp.float32)
  likes = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v, a))
  inputs = kept, q, k, v, a, d_state, d_y
  return library.call(
    'gla_backward', (state, *likes), *inputs, **options._asdict()
  )
