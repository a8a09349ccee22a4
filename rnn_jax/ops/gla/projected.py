"""The gated linear recurrence fused with its inputs' maps, in C++ on a CPU.

A projection x has, head by head, channels of q (K), k (K), the gate (G: K, or 1
for one per head), v (P) and a rest. One pass over time, forward and backward:

    q, k, v = f_q(c), f_k(c), f_v(c)    c_t = sum_{d<W} w_d * x_{t-d}, or x_t
    a = sigmoid(gate + bias)            S_t = diag(a_t) S_{t-1} + k_t v_t^T
                                        y_t = S_t^T q_t

The backward pass stores x itself and the state before each segment of steps,
and recomputes q, k, v and a (rnn_jax/native/gla_projected.cc). The convolution
is `causal_convolution`'s, the recurrence `gla`'s; the state and all sums are
float32. There are no second derivatives.

Shapes: x BxLxHxC, all float32 or all bfloat16; y BxLxHxP, the rest BxLxHxR; the
state BxHxKxP, the inputs before the first step Bx(W-1)xE and the taps WxE, with
q, k and v of each head in E; the bias HxG.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops.gla import native as gla_native

ACTIVATIONS = ('identity', 'sigmoid', 'tanh', 'silu')  # as the library counts

lacking = gla_native.lacking


class Layout(NamedTuple):
  """Channels of a head, and activations of q, k and v, out of ACTIVATIONS."""

  keys: int
  values: int
  gates: int
  query: str = 'identity'
  key: str = 'identity'
  value: str = 'identity'


def recurrence(
  layout: Layout,
  state_BxHxKxP: jax.Array,
  x_BxLxHxC: jax.Array,
  *,
  inputs: jax.Array | None = None,
  taps: jax.Array | None = None,
  bias: jax.Array | None = None,
  starts_BxL: jax.Array | None = None,
  segment: int = gla_native.SEGMENT,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Runs the recurrence over time, any L >= 1; see the module's docstring.

  Args:
    layout: the channels' order and activations.
    state_BxHxKxP: the state before the first step.
    x_BxLxHxC: the projection.
    inputs: x of q, k and v before the first step, if there are taps.
    taps: of the convolution, or None.
    bias: of the gate, or None.
    starts_BxL: nonzero where a document begins: earlier inputs and the state
      count as 0.
    segment: steps between the states that are stored for the backward pass.

  Returns:
    (state_BxHxKxP in float32, y_BxLxHxP and the rest BxLxHxR in x's dtype).

  Raises:
    ValueError: shapes disagree, or taps come without inputs.
    NotImplementedError: the library isn't available, the device isn't a CPU, or
      a second derivative is needed.
  """
  _check(layout, state_BxHxKxP, x_BxLxHxC, inputs, taps, bias, starts_BxL)
  if why := lacking(x_BxLxHxC.dtype):
    raise NotImplementedError(why)
  B, L = x_BxLxHxC.shape[:2]
  empty = jnp.zeros((0,))
  if taps is None or inputs is None:
    inputs, taps = jnp.zeros((B, 0)), empty
  bias = empty if bias is None else bias
  floats = state_BxHxKxP, inputs, taps, bias
  state, inputs, taps, bias = (x.astype(jnp.float32) for x in floats)
  starts = jnp.zeros((B, 0), jnp.uint8)
  if starts_BxL is not None:
    starts = (starts_BxL != 0).astype(jnp.uint8)
  options = _Options(
    keys=layout.keys,
    values=layout.values,
    gates=layout.gates,
    heads=x_BxLxHxC.shape[2],
    query=ACTIVATIONS.index(layout.query),
    key=ACTIVATIONS.index(layout.key),
    value=ACTIVATIONS.index(layout.value),
    segment=min(segment, L),
  )
  # Heads joined in one axis: XLA copies arrays with axes of 1 more often.
  x_BxLx_ = x_BxLxHxC.reshape(B, L, -1)
  state, y, rest = _run(options, state, inputs, x_BxLx_, taps, bias, starts)
  H = x_BxLxHxC.shape[2]
  return state, y.reshape(B, L, H, -1), rest.reshape(B, L, H, -1)


def _rest(layout, C):
  return C - 2 * layout.keys - layout.gates - layout.values


def _check(layout, state, x, inputs, taps, bias, starts):
  B, L, H, C = x.shape
  E = H * (2 * layout.keys + layout.values)
  if L < 1 or _rest(layout, C) < 0:
    raise ValueError(f'x_BxLxHxC has shape {x.shape}, too small for {layout}')
  expected = {
    'state_BxHxKxP': (state, (B, H, layout.keys, layout.values)),
    'bias': (bias, (H, layout.gates)),
    'starts_BxL': (starts, (B, L)),
  }
  if taps is not None:
    before = None if inputs is None else inputs.shape
    if before != (B, taps.shape[0] - 1, E) or taps.shape[1] != E:
      raise ValueError(
        f'taps have shape {taps.shape} and inputs {before}, not (W, {E}) and '
        f'({B}, W - 1, {E})'
      )
  for name, (array, shape) in expected.items():
    if array is not None and array.shape != shape:
      raise ValueError(f'{name} has shape {array.shape}, not {shape}')


class _Options(NamedTuple):
  """Attributes of the library calls."""

  keys: int
  values: int
  gates: int
  heads: int
  query: int
  key: int
  value: int
  segment: int


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(options, *arrays):
  state, y, _, x = _call_forward(options, False, *arrays)
  return state, y, _rest_of(options, x)


def _forward(options, state, inputs, x, *others):
  state, y, kept, x = _call_forward(options, True, state, inputs, x, *others)
  return (state, y, _rest_of(options, x)), (kept, inputs, x, *others)


def _backward(options, residuals, cotangents):
  *d, d_taps, d_bias = _call_backward(options, *residuals, *cotangents)
  *_, taps, bias, _ = residuals
  return *d, _of_all_rows(d_taps, taps), _of_all_rows(d_bias, bias), None


_run.defvjp(_forward, _backward)


def _rest_of(options, x):
  x = x.reshape(*x.shape[:2], options.heads, -1)
  C = x.shape[-1]
  rest = x[..., C - _rest(options, C) :]
  return rest.reshape(*rest.shape[:2], -1)


def _of_all_rows(d, like):
  return jnp.sum(d, 0).reshape(like.shape)


@transforms.by_rows(static=2, shared=(3, 4))
def _call_forward(options, keep, state, inputs, x, taps, bias, starts):
  B, L, _ = x.shape
  H, K, P = options.heads, options.keys, options.values
  segments = -(-L // options.segment) if keep else 0
  results = (
    jax.ShapeDtypeStruct((B, H, K, P), jnp.float32),
    jax.ShapeDtypeStruct((B, L, H * P), x.dtype),
    jax.ShapeDtypeStruct((B, H, segments, K, P), jnp.float32),
    jax.ShapeDtypeStruct(x.shape, x.dtype),
  )
  operands = state, inputs, x, taps, bias, starts
  return library.call(
    'gla_projected_forward',
    results,
    *operands,
    # Returned unchanged for the backward pass to overwrite: XLA copies an
    # operand that is read elsewhere as well.
    aliases={2: 3},
    **options._asdict(),
  )


@transforms.by_rows(static=1, shared=(3, 4))
def _call_backward(
  options, kept, inputs, x, taps, bias, starts, d_state, d_y, d_rest
):
  B = x.shape[0]
  shape = B, options.heads, options.keys, options.values
  results = (
    jax.ShapeDtypeStruct(shape, jnp.float32),
    jax.ShapeDtypeStruct(inputs.shape, jnp.float32),
    jax.ShapeDtypeStruct(x.shape, x.dtype),
    *(jax.ShapeDtypeStruct((B, n.size), jnp.float32) for n in (taps, bias)),
  )
  operands = kept, inputs, x, taps, bias, starts, d_state, d_y, d_rest
  return library.call(
    'gla_projected_backward',
    results,
    *operands,
    aliases={2: 2},  # the gradient of x overwrites x
    **options._asdict(),
  )
