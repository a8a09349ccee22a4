"""The elementwise linear recurrence in C++ on a CPU, forward and backward.

One pass over time for each row and block of channels; the equations are those
of `linear_scan`. There are no second derivatives.
"""

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks

lacking = checks.lacking_native


def recurrence(
  state_BxS: jax.Array, f_BxLxS: jax.Array, u_BxLxS: jax.Array
) -> jax.Array:
  """Returns h_BxLxS; all arrays are float32.

  Raises:
    NotImplementedError: the library isn't available, the device isn't a CPU, or
      a second derivative is needed.
  """
  if why := lacking():
    raise NotImplementedError(why)
  return _run(state_BxS, f_BxLxS, u_BxLxS)


@jax.custom_vjp
def _run(state, f, u):
  (h,) = _call_forward(state, f, u)
  return h


def _forward(state, f, u):
  h = _run(state, f, u)
  return h, (state, f, h)


def _backward(residuals, d_h):
  return _call_backward(*residuals, d_h)


_run.defvjp(_forward, _backward)


@transforms.by_rows(static=0)
def _call_forward(state, f, u):
  result = jax.ShapeDtypeStruct(u.shape, jnp.float32)
  return library.call('linear_scan_forward', (result,), state, f, u)


@transforms.by_rows(static=0)
def _call_backward(state, f, h, d_h):
  likes = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (state, f, h))
  return library.call('linear_scan_backward', tuple(likes), state, f, h, d_h)
