"""A short causal depthwise convolution, with a state.

    y_t = f(sum_{d<W} w_d * x_{t-d} + b)        * is elementwise over channels

with the identity or a SiLU as f, and maybe a norm for each head after it.

Shapes: x and y are BxLxE (batch, time, channels), the kernel is WxE with tap d
in row d, the state is Bx(W-1)xE: the inputs just before the first step, zero
where there were none. Inputs of another document, by `starts`, count as zero.
Sums are float32, if x has fewer bits. XLA computes y, f included, in one pass
over x; gradients in one are pallas.py's, which keep only the inputs.
`windows` returns the inputs of a convolution across channels: one matmul.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops.causal_convolution import pallas as kernels


class Norm(NamedTuple):
  """Gives each head's outputs a length: c y / sqrt(|y|^2 + e).

  Attributes:
    heads: of so many neighbouring channels each.
    scale: c.
    epsilon: e.
  """

  heads: int
  scale: float = 1.0
  epsilon: float = 1e-6


class Options(NamedTuple):
  """What a convolution's sums go through, and how it runs.

  Attributes:
    silu: whether f is the SiLU; else the identity.
    norm: of the outputs, which are float32 then under 'xla'; None: none.
    impl: 'xla', or 'pallas': kernels for a GPU, with the SiLU, where they read
      or write less.
  """

  silu: bool = False
  norm: Norm | None = None
  impl: str = 'xla'


PLAIN = Options()


def convolve(
  state: jax.Array,
  x_BxLxE: jax.Array,
  kernel_WxE: jax.Array,
  starts_BxL: jax.Array | None = None,
  bias_E: jax.Array | None = None,
  options: Options = PLAIN,
) -> tuple[jax.Array, jax.Array]:
  """Runs the convolution over L >= 1 steps.

  Args:
    state: the W - 1 inputs before the first step, Bx(W-1)xE.
    x_BxLxE: the inputs.
    kernel_WxE: the taps.
    starts_BxL: nonzero where a document begins.
    bias_E: b; None: 0.
    options: what follows the sums.

  Returns:
    (state, y_BxLxE), the state in x's dtype; see Options for y's.

  Raises:
    NotImplementedError: options.impl is 'pallas', and the device isn't a GPU,
      f isn't the SiLU, or there is one tap.
  """
  if options.impl == 'pallas' and (not options.silu or len(kernel_WxE) < 2):
    raise NotImplementedError(
      "impl='pallas' has a SiLU and 2 taps or more: use 'xla'"
    )
  inputs = state, x_BxLxE, kernel_WxE, bias_E, starts_BxL
  run = _by_kernels if options.impl == 'pallas' else _outputs
  return next_state(state, x_BxLxE, starts_BxL), run(options, *inputs)


def _outputs(options, state, x, kernel, bias, starts):
  y = _sums(state, x, kernel, bias, starts)
  y = (jax.nn.silu(y) if options.silu else y).astype(x.dtype)
  return normed(y, options.norm) if options.norm else y


def normed(y: jax.Array, norm: Norm) -> jax.Array:
  """Returns c y / sqrt(|y|^2 + e) of each head of y_BxLxE, float32 or more."""
  heads, scale, epsilon = norm
  exact = jnp.promote_types(y.dtype, jnp.float32)
  by_head = y.astype(exact).reshape(*y.shape[:-1], heads, -1)
  squares = jnp.sum(by_head * by_head, -1, keepdims=True)
  by_head = by_head * jax.lax.rsqrt(squares + epsilon) * scale
  return by_head.reshape(y.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _by_kernels(options, *inputs):
  if options.norm:
    return kernels.outputs(options.norm, *inputs)
  return _outputs(options, *inputs)  # one pass over x in XLA, too


def _forward(options, *inputs):
  return _by_kernels(options, *inputs), inputs


def _backward(options, inputs, dy):
  return *kernels.gradients(options.norm, inputs, dy), None


_by_kernels.defvjp(_forward, _backward)


def _sums(state, x, kernel, bias, starts):
  """Returns the outputs before the activation, float32 or of more bits."""
  exact = jnp.promote_types(x.dtype, jnp.float32)
  zero: Any = 0
  if starts is not None:
    # A constant would become an array of zeros that all layers read.
    zero, kernel = jax.lax.optimization_barrier(
      (jnp.zeros((), x.dtype), kernel)
    )
  _, delayed = _delayed(state, x, kernel.shape[0], starts, zero)
  y: Any = 0.0 if bias is None else bias.astype(exact)[None, None]
  for d, past in enumerate(delayed):
    y = y + kernel[d].astype(exact)[None, None] * past.astype(exact)
  return y


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


def _delayed(state, x_BxLxE, taps, starts_BxL, zero=0):
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
    return jnp.where(same[..., None], x, zero)

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
