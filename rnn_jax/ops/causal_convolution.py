"""A short causal convolution per channel, with a state.

    y_t = sum_{d<W} w_d * x_{t-d}        * is elementwise over channels

Shapes: x and y are BxLxE (batch, time, channels), the kernel is WxE with tap d
in row d, the state is Bx(W-1)xE: the inputs just before the first step, zero
where there were none. Inputs of another document, by `starts`, count as zero.
"""

import jax.numpy as jnp


def convolve(state, x_BxLxE, kernel_WxE, starts_BxL=None):
  """Runs the convolution. Returns (state, y_BxLxE); L = 1 is one step."""
  taps, length = kernel_WxE.shape[0], x_BxLxE.shape[1]
  padded = jnp.concatenate([state.astype(x_BxLxE.dtype), x_BxLxE], 1)
  document = _document_of_each_step(starts_BxL, padded, taps - 1)
  y = 0.0
  for d in range(taps):
    begin = taps - 1 - d
    x = padded[:, begin : begin + length]
    if d and document is not None:
      same = document[:, begin : begin + length] == document[:, taps - 1 :]
      x = jnp.where(same[..., None], x, 0)
    y = y + kernel_WxE[d, None, None] * x
  state = padded[:, length:]
  if document is not None:
    same = document[:, length:] == document[:, -1:]
    state = jnp.where(same[..., None], state, 0)
  return state, y


def _document_of_each_step(starts, padded, carried):
  """Numbers documents along time; the carried inputs belong to number 0."""
  if starts is None:
    return None
  numbers = jnp.cumsum(starts != 0, 1)
  return jnp.pad(numbers, [(0, 0), (carried, 0)])
