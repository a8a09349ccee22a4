"""A short causal convolution per channel, with a state.

    y_t = sum_{d<W} w_d * x_{t-d}        * is elementwise over channels

Shapes: x and y are BxLxE (batch, time, channels), the kernel is WxE with tap d
in row d, the state is Bx(W-1)xE: the inputs just before the first step, zero
where there were none. Inputs of another document, by `starts`, count as zero.
`windows` are what a convolution across channels multiplies: one matmul.
"""

import jax
import jax.numpy as jnp


def convolve(state, x_BxLxE, kernel_WxE, starts_BxL=None):
  """Runs the convolution. Returns (state, y_BxLxE); L = 1 is one step."""
  state, delayed = _delayed(state, x_BxLxE, kernel_WxE.shape[0], starts_BxL)
  y = 0.0
  for d, x in enumerate(delayed):
    y = y + kernel_WxE[d, None, None] * x
  return state, y


def windows(
  state: jax.Array,
  x_BxLxE: jax.Array,
  taps: int,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """The inputs that each step sees: (state, x_BxLxWxE), x_{t-d} in row d."""
  state, delayed = _delayed(state, x_BxLxE, taps, starts_BxL)
  return state, jnp.stack([*delayed], 2)


def _delayed(state, x_BxLxE, taps, starts_BxL):
  """The state behind the steps, and an iterator of x_{t-d} for each d."""
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


def state_behind(state, x_BxLxE, starts_BxL=None):
  """The state alone, as `convolve` returns it."""
  count = state.shape[1]
  x_BxLxE = x_BxLxE[:, -count:] if count else x_BxLxE[:, :0]
  if starts_BxL is not None:
    starts_BxL = starts_BxL[:, starts_BxL.shape[1] - x_BxLxE.shape[1] :]
  padded = jnp.concatenate([state.astype(x_BxLxE.dtype), x_BxLxE], 1)
  document = _document_of_each_step(starts_BxL, padded, count)
  return _newest(padded, document, count)


def _newest(padded, document, count):
  """The last inputs, as far as they are of the last step's document."""
  begin = padded.shape[1] - count
  newest = padded[:, begin:]
  if document is None:
    return newest
  same = document[:, begin:] == document[:, -1:]
  return jnp.where(same[..., None], newest, 0)


def _document_of_each_step(starts, padded, carried):
  """Numbers documents along time; the carried inputs belong to number 0."""
  if starts is None:
    return None
  numbers = jnp.cumsum(starts != 0, 1)
  return jnp.pad(numbers, [(0, 0), (carried, 0)])
