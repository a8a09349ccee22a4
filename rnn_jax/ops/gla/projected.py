"""The gated linear recurrence fused with its inputs' maps, in C++ on a CPU.

A projection x has, head by head, channels of q (K), k (K), the gate (G: K, or 1
for one per head), v (P) and a rest. One pass over time, forward and backward:

    c_t = b + sum_{d<W} w_d * x_{t-d}   or x_t
    q, k, v = f_q(c), f_k(c), f_v(c)    a = sigmoid(gate + bias)
    S_t = diag(a_t) S_{t-1} + k_t v_t^T
    y_t = S_t^T q_t + skip * v_t

A coupled layout writes (1 - a_t) k_t in place of k_t. The backward pass stores
x itself and the state before each segment of steps, and recomputes q, k, v and
a (rnn_jax/native/gla_projected.cc). The convolution is `causal_convolution`'s,
the recurrence `gla`'s; all sums are float32, and so is the state, or it is
bfloat16 between calls, rounded after the last step. There are no second
derivatives.

Shapes: x BxLxHxC, all float32 or all bfloat16; y BxLxHxP, the rest BxLxHxR; the
state BxHxKxP, the inputs before the first step Bx(W-1)xE, the taps w WxE and
their bias b E, with q, k and v of each head in E; the gate's bias HxG and the
skip's weights HxP.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
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
  coupled: bool = False  # k is scaled by 1 - a


class Weights(NamedTuple):
  """What the maps learn; None: the layout has no such part."""

  taps: jax.Array | None = None  # WxE
  taps_bias: jax.Array | None = None  # E
  gate_bias: jax.Array | None = None  # HxG
  skip: jax.Array | None = None  # HxP


def recurrence(
  layout: Layout,
  state_BxHxKxP: jax.Array,
  x_BxLxHxC: jax.Array,
  weights: Weights,
  *,
  inputs: jax.Array | None = None,
  starts_BxL: jax.Array | None = None,
  segment: int = gla_native.SEGMENT,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Runs the recurrence over time, any L >= 1; see the module's docstring.

  Args:
    layout: the channels' order and activations.
    state_BxHxKxP: the state before the first step.
    x_BxLxHxC: the projection.
    weights: of the maps.
    inputs: x of q, k and v before the first step, if there are taps.
    starts_BxL: nonzero where a document begins: earlier inputs and the state
      count as 0.
    segment: steps between the states that are stored for the backward pass.

  Returns:
    (state_BxHxKxP in float32, or in bfloat16 if it was given so; y_BxLxHxP and
    the rest BxLxHxR in x's dtype).

  Raises:
    ValueError: shapes disagree, or taps come without inputs or a bias of taps
      without taps.
    NotImplementedError: the library isn't available, the device isn't a CPU, or
      a second derivative is needed.
  """
  _check(layout, state_BxHxKxP, x_BxLxHxC, weights, inputs, starts_BxL)
  if why := lacking(x_BxLxHxC.dtype):
    raise NotImplementedError(why)
  B, L, H = x_BxLxHxC.shape[:3]
  if inputs is None:
    inputs = jnp.zeros((B, 0))
  state = state_BxHxKxP.astype(checks.state_dtype(state_BxHxKxP))
  inputs, *learned = (
    (jnp.zeros((0,)) if x is None else x).astype(jnp.float32)
    for x in (inputs, *weights)
  )
  starts = checks.to_marks(starts_BxL, B)
  options = _Options(
    keys=layout.keys,
    values=layout.values,
    gates=layout.gates,
    heads=H,
    query=ACTIVATIONS.index(layout.query),
    key=ACTIVATIONS.index(layout.key),
    value=ACTIVATIONS.index(layout.value),
    coupled=int(layout.coupled),
    segment=min(segment, L),
  )
  # Heads joined in one axis: XLA copies arrays with axes of 1 more often.
  x_BxLx_ = x_BxLxHxC.reshape(B, L, -1)
  state, y, rest = _run(options, state, inputs, x_BxLx_, *learned, starts)
  return state, y.reshape(B, L, H, -1), rest.reshape(B, L, H, -1)


def _rest(layout, C):
  return C - 2 * layout.keys - layout.gates - layout.values


def _check(layout, state, x, weights, inputs, starts):
  B, L, H, C = x.shape
  E = H * (2 * layout.keys + layout.values)
  if L < 1 or _rest(layout, C) < 0:
    raise ValueError(f'x_BxLxHxC has shape {x.shape}, too small for {layout}')
  taps = weights.taps
  if taps is not None:
    before = None if inputs is None else inputs.shape
    if before != (B, taps.shape[0] - 1, E) or taps.shape[1] != E:
      raise ValueError(
        f'taps have shape {taps.shape} and inputs {before}, not (W, {E}) and '
        f'({B}, W - 1, {E})'
      )
  elif weights.taps_bias is not None:
    raise ValueError('taps_bias is given without taps')
  checks.check_shapes(
    ('state_BxHxKxP', state, (B, H, layout.keys, layout.values)),
    ('taps_bias', weights.taps_bias, (E,)),
    ('gate_bias', weights.gate_bias, (H, layout.gates)),
    ('skip', weights.skip, (H, layout.values)),
    ('starts_BxL', starts, (B, L)),
  )


class _Options(NamedTuple):
  """Attributes of the library calls."""

  keys: int
  values: int
  gates: int
  heads: int
  query: int
  key: int
  value: int
  coupled: int
  segment: int


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(options, *arrays):
  state, y, *_ = _call_forward(options, False, *arrays)
  return state, y, _rest_of(options, arrays[2])


def _forward(options, state, inputs, x, *others):
  state, y, kept, x = _call_forward(options, True, state, inputs, x, *others)
  return (state, y, _rest_of(options, x)), (kept, inputs, x, *others)


def _backward(options, residuals, cotangents):
  d_last, *others = cotangents
  d_state, *d = _call_backward(
    options, *residuals, d_last.astype(jnp.float32), *others
  )
  _, _, _, *learned, _ = residuals
  d_learned = map(_of_all_rows, d[2:], learned)
  return d_state.astype(d_last.dtype), *d[:2], *d_learned, None


_run.defvjp(_forward, _backward)


def _rest_of(options, x):
  x = x.reshape(*x.shape[:2], options.heads, -1)
  C = x.shape[-1]
  rest = x[..., C - _rest(options, C) :]
  return rest.reshape(*rest.shape[:2], -1)


def _of_all_rows(d, like):
  return jnp.sum(d, 0).reshape(like.shape)


LEARNED = 3, 4, 5, 6  # operands that all rows share: Weights


@transforms.by_rows(static=2, shared=LEARNED)
def _call_forward(options, keep, state, inputs, x, *others):
  B, L, _ = x.shape
  H, K, P = options.heads, options.keys, options.values
  segments = -(-L // options.segment) if keep else 0
  results = (
    jax.ShapeDtypeStruct((B, H, K, P), state.dtype),
    jax.ShapeDtypeStruct((B, L, H * P), x.dtype),
    jax.ShapeDtypeStruct((B, H, segments, K, P), jnp.float32),
    jax.ShapeDtypeStruct(x.shape if keep else (B, 0), x.dtype),
  )
  # x is returned unchanged, for the backward pass to overwrite, and forward
  # alone overwrites the state. XLA copies what is read elsewhere as well.
  aliases = {2: 3} if keep else {0: 0}
  return library.call(
    'gla_projected_forward',
    results,
    *(state, inputs, x, *others),
    aliases=aliases,
    **options._asdict(),
  )


@transforms.by_rows(static=1, shared=LEARNED)
def _call_backward(options, kept, inputs, x, *others):
  B = x.shape[0]
  learned = others[: len(LEARNED)]
  shape = B, options.heads, options.keys, options.values
  results = (
    jax.ShapeDtypeStruct(shape, jnp.float32),
    jax.ShapeDtypeStruct(inputs.shape, jnp.float32),
    jax.ShapeDtypeStruct(x.shape, x.dtype),
    *(jax.ShapeDtypeStruct((B, n.size), jnp.float32) for n in learned),
  )
  return library.call(
    'gla_projected_backward',
    results,
    *(kept, inputs, x, *others),
    aliases={2: 2},  # the gradient of x overwrites x
    **options._asdict(),
  )
