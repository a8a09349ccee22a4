"""The gated linear recurrence on Hopper GPUs: Pallas kernels through Mosaic.

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

The equations are those of `gla.pallas`, with chunks of C = 64 steps:

    scores_ij = sum_K q_i k_j d(j, i], j <= i        total = d(0, C]
    read_i = q_i d(0, i]       write_j = k_j d(j, C]
    y = read S + scores v      S' = diag(total) S + write^T v

`prepare` computes read, write, total and scores of each chunk, `states` carries
the state through the chunks in order, `outputs` computes y. Backward, with D
the gradient of the state after a chunk,

    D' = diag(total) D + read^T dy            dv = write D + scores^T dy
    dread = dy S^T     dwrite = v D^T         dscores = dy v^T (where j <= i)

`states` and `outputs` run again, in reverse, for the first two; `meet` computes
dread, dwrite and the gradient of total, the diagonal of S D^T; `gradients`
turns these into the gradients of q, k and log a.

All products, sums of log-decays too, are wgmma instructions on tiles of 64 x 64
that TMA loads. Nothing is divided by a decay, and no exponent is positive: each
pair of steps has a border between them, in the middle of the chunk, of its
halves, and so on; the later step's query is decayed from it and the earlier
step's key up to it. A step is late or early at a border, never both: one tile
holds the queries of the late and the keys of the early steps, and its product
with itself has all pairs across the border.
Source: Yang et al., "Gated Linear Attention Transformers with Hardware-
Efficient Training", 2024.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.ops.gla.mosaic import kernels
from rnn_jax.ops.gla.mosaic import tiles

TILE = tiles.TILE
CAPABILITY = 9  # wgmma is an instruction of this compute capability only


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  operands: str = 'float32',
  interpreted: bool = False,
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time, on the device of the program.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxHxK.
    k: BxLxHxK.
    v: BxLxHxP.
    loga: BxLxHxK.
    operands: 'float32', 'tf32' or 'bfloat16': the format of the matmuls'
      operands, computed with 24, 16 and 8 bits.
    interpreted: whether kernels are interpreted.

  Returns:
    (state BxHxKxP in float32, y BxLxHxP in float32 or bfloat16).
  """
  (B, L, H, K), P = q.shape, v.shape[-1]
  steps, keys, values = -L % TILE, -K % TILE, -P % TILE
  loga = loga.astype(jnp.float32)
  q, k, loga = (_pad(x, steps, keys) for x in (q, k, loga))
  v = _pad(v, steps, values)
  state = jnp.pad(state, [(0, 0), (0, 0), (0, keys), (0, values)])
  plan = tiles.Plan(
    operands=operands,
    B=B,
    L=L + steps,
    H=H,
    K=K + keys,
    P=P + values,
    interpret=interpreted,
  )
  q, k, v = (x.astype(plan.stored) for x in (q, k, v))
  state, y = _run(plan, state.astype(jnp.float32), q, k, v, loga)
  return state[:, :, :K, :P], y[:, :L, :, :P]


def _pad(x, steps, columns):
  """Appends zeros, which write nothing, forget nothing and aren't read."""
  return jnp.pad(x, [(0, 0), (0, steps), (0, 0), (0, columns)])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(plan, state, q, k, v, loga):
  return _forward(plan, state, q, k, v, loga)[0]


def _forward(plan, state, q, k, v, loga):
  read, write, total, scores = kernels.prepare(plan, q, k, loga)
  v_parts = _operand(plan, v)
  states, last = kernels.states(plan, _rows(state), write, v_parts, total)
  y = kernels.outputs(plan, read, states, scores, v_parts)
  kept = (read, write, total, scores) if plan.keeps else None
  return (last.reshape(state.shape), y), (q, k, v, loga, states, kept)


def _backward(plan, residuals, cotangents):
  # Without a barrier, XLA merges what is recomputed with the forward pass and
  # stores it after all.
  q, k, v, loga, states, kept = jax.lax.optimization_barrier(residuals)
  d_last, dy = cotangents
  read, write, total, scores = kept or kernels.prepare(plan, q, k, loga)
  v_parts, dy_parts = _operand(plan, v), _operand(plan, dy)
  d_states, d_state = kernels.states(
    plan, _rows(d_last), read, dy_parts, total, reverse=True
  )
  dv = kernels.outputs(plan, write, d_states, scores, dy_parts, reverse=True)
  met = kernels.meet(plan, dy_parts, v_parts, states, d_states)
  dq, dk, d_loga = kernels.gradients(plan, q, k, loga, *met)
  return d_state.reshape(d_last.shape), dq, dk, dv, d_loga


_run.defvjp(_forward, _backward)


def _rows(state):
  return state.reshape(-1, *state.shape[2:])


def _operand(plan, x):
  return jnp.concatenate(tiles.split(x.astype(jnp.float32), plan.parts))
