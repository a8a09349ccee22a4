"""A short causal depthwise convolution, with a state.

    y_t = sum_{d<W} w_d * x_{t-d}        * is elementwise over channels

Shapes: x and y are BxLxE (batch, time, channels), the kernel is WxE with tap d
in row d, the state is Bx(W-1)xE: the inputs just before the first step, zero
where there were none. Inputs of another document, by `starts`, count as zero.
`windows` returns the inputs of a convolution across channels: one matmul.
"""

from typing import Any

import jax
import jax.numpy as jnp


def convolve(
  state: jax.Array,
  x_BxLxE: jax.Array,
  kernel_WxE: jax.Array,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs the convolution over L >= 1 steps.

  Args:
    state: the W - 1 inputs before the first step, Bx(W-1)xE.
    x_BxLxE: the inputs.
    kernel_WxE: the taps.
    starts_BxL: nonzero where a document begins.

  Returns:
    (state, y_BxLxE), the state in x's dtype.
  """
  state, delayed = _delayed(state, x_BxLxE, kernel_WxE.shape[0], starts_BxL)
  y: Any = 0.0
  for d, x in enumerate(delayed):
    y = y + kernel_WxE[d, None, None] * x
  return state, y


def windows(
  state: jax.Array,
  x_BxLxE: jax.Array,
  taps: int,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Returns the inputs of each step: (state, x_BxLxWxE), x_{t-d} in row d.

  Arguments are those of `convolve`; `taps` is W.
  """
  state, delayed = _delayed(state, x_BxLxE, taps, starts_BxL)
  return state, jnp.stack([*delayed], 2)


def _delayed(state, x_BxLxE, taps, starts_BxL):
  """Returns the next state, and an iterator of x_{t-d} for each d."""
  length = x_BxLxE.shape[1]
  padded = jnp.concatenate([state.astype(x_BxLxE.dtype), x_BxLxE], 1)
  document = _document_of_each_step(starts_BxL, padded, taps - 1)

  def delay(d):
    begin = taps - 1 - d
    x = padded[:, begin : begin + length]
    if not d or document is None:
      return x
    same = document[:, begin : begin + length] == document[:, taps - 1 :]
    return jnp.where(same[..., None], x, 0)

  return _newest(padded, document, taps - 1), map(delay, range(taps))


def next_state(
  state: jax.Array, x_BxLxE: jax.Array, starts_BxL: jax.Array | None = None
) -> jax.Array:
  """Returns the state after L steps, as `convolve` does."""
  count = state.shape[1]
  x_BxLxE = x_BxLxE[:, -count:] if count else x_BxLxE[:, :0]
  if starts_BxL is not None:
    starts_BxL = starts_BxL[:, starts_BxL.shape[1] - x_BxLxE.shape[1] :]
  padded = jnp.concatenate([state.astype(x_BxLxE.dtype), x_BxLxE], 1)
  document = _document_of_each_step(starts_BxL, padded, count)
  return _newest(padded, document, count)


def _newest(padded, document, count):
  """Returns the last inputs, zero where they are of an earlier document."""
  begin = padded.shape[1] - count
  newest = padded[:, begin:]
  if document is None:
    return newest
  same = document[:, begin:] == document[:, -1:]
  return jnp.where(same[..., None], newest, 0)


def _document_of_each_step(starts, padded, carried):
  """Numbers documents along time; the state's inputs belong to number 0."""
  if starts is None:
    return None
  numbers = jnp.cumsum(starts != 0, 1)
  return jnp.pad(numbers, [(0, 0), (carried, 0)])
