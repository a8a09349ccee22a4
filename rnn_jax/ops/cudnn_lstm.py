"""The LSTM by cuDNN's kernels, forward and backward, on an NVIDIA GPU.

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)     g = tanh(W x_t + U h_{t-1} + b)
    c_t = f * c_{t-1} + i * g                    h_t = o * tanh(c_t)

as in cells/lstm.py, in float32, with operands in float32 or TF32. cuDNN reads
one array of weights, in which W^T and U^T follow one another row by row, their
gates in the order i, f, g, o, and then two biases; here the second is 0.

cuDNN keeps the state through a row. Rows in which a document begins after the
first step run step by step in the same program, which reads from the data which
of the two to run. The backward pass keeps what cuDNN does, and runs the steps
again where they ran.

Shapes: x BxLxD; W Dx4S, U Sx4S, b 4S; h and c BxS, h BxLxS of all steps.
Source: Appleyard et al., "Optimizing Performance of Recurrent Neural Networks
on GPUs", 2016.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import rnn

from rnn_jax.ops import precision
from rnn_jax.system import target

FORMATS = {
  'float32': jax.lax.Precision.HIGHEST,
  'tf32': jax.lax.Precision.HIGH,
}


class Weights(NamedTuple):
  """The parameters, gates in the order i, f, g, o."""

  W_Dx_: jax.Array
  U_Sx_: jax.Array
  b_: jax.Array


def lacking(operands: str = 'float32') -> str:
  """Returns why cuDNN can't run here, and the remedy; '' if it can."""
  why = ''
  if target.platform() != 'gpu':
    why = f'needs an NVIDIA GPU, not {target.platform()}'
  elif target.used():
    why = 'asks a GPU for the size of its memory, and a target is none'
  elif not hasattr(rnn.gpu_rnn, 'compute_rnn_workspace_reserve_space_sizes'):
    why = "needs the packages of '.[cuda12]' or '.[cuda13]'"
  elif operands not in FORMATS:
    why = f'multiplies in one of {tuple(FORMATS)}, not {operands}'
  return f"impl='cudnn' {why}: use 'auto' or 'scan'" if why else ''


def recurrence(
  h_BxS: jax.Array,
  c_BxS: jax.Array,
  x_BxLxD: jax.Array,
  weights: Weights,
  *,
  starts_BxL: jax.Array | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Runs the LSTM over time, any L >= 1.

  Args:
    h_BxS: h before the first step.
    c_BxS: c before the first step.
    x_BxLxD: the inputs.
    weights: the parameters.
    starts_BxL: nonzero where a document begins: h and c are zeroed before it.
    operands: the format of the matmuls' operands, one of FORMATS.

  Returns:
    (h_BxS, c_BxS, h_BxLxS), float32.

  Raises:
    NotImplementedError: cuDNN can't run here.
  """
  if why := lacking(operands):
    raise NotImplementedError(why)
  arrays = jax.tree.map(
    lambda x: x.astype(jnp.float32), (h_BxS, c_BxS, x_BxLxD, weights)
  )
  return _run(operands, *arrays, starts_BxL)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(operands, h, c, x, weights, starts):
  return _forward(operands, h, c, x, weights, starts)[0]


def _forward(operands, h, c, x, weights, starts):
  inputs = h, c, x, weights
  whole = functools.partial(_whole, operands, starts)
  reserved = jax.eval_shape(whole, inputs)[1]

  def by_steps(inputs):
    out = _by_steps(operands, starts, *inputs)
    return out, jnp.zeros(reserved.shape, reserved.dtype)

  out, kept = _either(starts, by_steps, whole, inputs)
  return out, (inputs, starts, out[2], kept)


def _backward(operands, residuals, d):
  inputs, starts, y, kept = residuals

  def by_steps(inputs, y, kept, d):
    del y, kept
    steps = functools.partial(_by_steps, operands, starts)
    return jax.vjp(steps, *inputs)[1](d)

  whole = functools.partial(_whole_backward, operands, starts)
  return *_either(starts, by_steps, whole, inputs, y, kept, d), None


_run.defvjp(_forward, _backward)


def _either(starts, by_steps, whole, *operands):
  """Runs rows step by step if a document begins within one, else whole."""
  if starts is None:
    return whole(*operands)
  # What is computed at padding, marked below 0, nobody reads.
  within = jnp.any(starts[:, 1:] > 0)
  return jax.lax.cond(within, by_steps, whole, *operands)


def _whole(operands, starts, inputs):
  """Returns ((h, c, y), what cuDNN's backward pass reads)."""
  arrays, options = _arguments(operands, starts, inputs)
  (y, h, c), residuals = rnn.lstm_fwd(*arrays, *options)
  return (h[0], c[0], y), residuals[-1]


def _whole_backward(operands, starts, inputs, y, kept, d):
  """Returns the gradients of `inputs`."""
  arrays, options = _arguments(operands, starts, inputs)
  d_h, d_c, d_y = d
  cotangents = d_y, d_h[None], d_c[None]
  d_x, d_h, d_c, d_packed, _ = rnn.lstm_bwd(
    *options, (*arrays, y, kept), cotangents
  )
  (d_weights,) = jax.linear_transpose(_pack, inputs[-1])(d_packed)
  d_h, d_c = (_carried(starts, d[0]) for d in (d_h, d_c))
  return d_h, d_c, d_x, d_weights


def _arguments(operands, starts, inputs):
  """Returns the arrays and the options of jax.experimental.rnn."""
  h, c, x, weights = inputs
  (B, L, D), S = x.shape, h.shape[-1]
  h, c = (_carried(starts, state)[None] for state in (h, c))
  arrays = x, h, c, _pack(weights), jnp.full((B,), L, jnp.int32)
  return arrays, (D, S, 1, 0.0, False, FORMATS[operands])


def _pack(weights):
  """Returns the weights in cuDNN's order."""
  W, U, b = weights
  return jnp.concatenate([W.T.ravel(), U.T.ravel(), b, jnp.zeros_like(b)])


def _carried(starts, state):
  """Returns a state, 0 where a document begins with the row."""
  return state if starts is None else jnp.where(starts[:, :1] != 0, 0, state)


def _by_steps(operands, starts, h, c, x, weights):
  """Returns (h, c, y)."""
  W, U, b = weights
  u = precision.einsum('bld,dp->blp', x, W, operands) + b[None, None]

  def step(state, now):
    u, start = now
    h, c = (jnp.where(start[:, None] != 0, 0, x) for x in state)
    raw = u + precision.einsum('bs,sp->bp', h, U, operands)
    i, f, g, o = jnp.split(raw, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h

  by_time = u.swapaxes(0, 1), starts.swapaxes(0, 1)
  (h, c), y = jax.lax.scan(step, (h, c), by_time)
  return h, c, y.swapaxes(0, 1)
