"""The delta rule on a GPU: Pallas kernels lowered through Triton.

The equations are those of delta.chunked, in blocks of C steps: with S the state
before a block, u the rows that it writes by w, and v those that it writes by k
in the general form,

    u = M v + weights S      S <- diag(b) S + w~^T u + k~^T v
    y = q~ S + A [v; u]      M = T diag(beta), or -T R_k; weights = -T r~

`blocks.prepare` computes all that doesn't depend on the state, `states.states`
carries the state through the blocks and stores u and S, `states.outputs`
computes y. Backward, with D the gradient of the state after a block,

    e = A_u^T dy + w~ D      D <- diag(b) D + weights^T e + q~^T dy
    f = T^T e                dR = -f [v; u]^T        dA = dy [v; u]^T
    dv = beta f, or M^T e + A_v^T dy + k~ D

`prepare` and `states` run again, so that only the inputs are kept; `states`
runs in reverse for e and D, `states.pairs` computes dA, dR and dv, and
`gradients.gradients` those of q, k, the decays and what else there is.

Arrays are read and written as BxLxHx_, without copies. A row is one chunk if
its blocks take no more than MEMORY; of several, each is run again from the
state before it.

Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over
Sequence Length", 2024.
"""

import functools

import jax
import jax.numpy as jnp
from jax import ad_checkpoint
from jax.experimental import pallas as pl

from rnn_jax.ops.delta import chunked as delta_chunked
from rnn_jax.ops.delta.pallas import blocks as kernel_blocks
from rnn_jax.ops.delta.pallas import gradients as kernel_gradients
from rnn_jax.ops.delta.pallas import states as kernel_states
from rnn_jax.ops.delta.pallas import tiles
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.ops.gla.pallas import tiles as gla_tiles

KEPT = 'recurrence'  # name of y, which remat may save: nothing then runs again
LONGEST = 64  # steps of a block
MEMORY = 2**32  # bytes that the blocks of a chunk may take


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  others: tuple[jax.Array, ...],
  chunk_length: int | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs either recurrence over time.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxHxK.
    k: BxLxHxK.
    v: BxLxHxP.
    loga: the log-decays, BxLxHxK or BxLxHx1.
    others: (beta BxLxH,), or (r, w) of the general form.
    chunk_length: steps between stored states, rounded up to whole blocks; None:
      as many as MEMORY allows.
    operands: one of precision.RECURRENT, the format of the matmuls' operands.
      With 'bfloat16', all but decays and beta is read and y is written in it.

  Returns:
    (state BxHxKxP in float32, y BxLxHxP in float32 or bfloat16).

  Raises:
    NotImplementedError: the device isn't a GPU, or K or P is above
      gla_pallas.WIDEST.
  """
  (B, L, H, K), P = q.shape, v.shape[-1]
  gla_pallas.check_device()
  gla_pallas.check_widths(K, P)
  plan = tiles.Plan(
    operands=operands,
    interpret=gla_pallas.interpreted(),
    B=B,
    L=L,
    H=H,
    K=_padded(K),
    P=_padded(P),
    block=LONGEST,
    by_head=loga.shape[-1] < K,
    general=len(others) > 1,
  )
  steps = min(chunk_length or _chunk_length(plan), L)
  block = delta_chunked.block_length(steps, K, LONGEST)
  chunks, blocks = delta_chunked.division(L, steps, block)
  plan = plan._replace(L=blocks * _padded(block), block=_padded(block))
  length = chunks * blocks * block

  def arrange(x, dtype):
    """Returns BxLxHx_, or of several chunks each."""
    # Appended steps and columns forget nothing, write nothing, aren't read.
    width = x.shape[-1] if x.shape[-1] == 1 < K else _padded(x.shape[-1])
    x = jnp.pad(x.astype(dtype), _at_end(1, length - L))
    x = x.reshape(B, chunks * blocks, block, H, -1)
    x = jnp.pad(x, _at_end(2, plan.block - block))
    x = jnp.pad(x, _at_end(4, width - x.shape[-1]))
    return x.reshape(B, chunks, plan.L, H, width).swapaxes(0, 1)

  exact = jnp.float32
  others = (
    tuple(arrange(x, plan.stored) for x in others)
    if plan.general
    else (arrange(others[0][..., None], exact),)
  )
  steps = *(arrange(x, plan.stored) for x in (q, k, v)), arrange(loga, exact)
  pads = [(0, 0), (0, 0), (0, plan.K - K), (0, plan.P - P)]
  state = jnp.pad(state.astype(exact), pads)
  state, y = _chunks(plan, state, (*steps, *others))
  y = y.swapaxes(0, 1).reshape(B, chunks * blocks, plan.block, H, plan.P)
  y = y[:, :, :block].reshape(B, length, H, plan.P)
  return state[:, :, :K, :P], y[:, :L, :, :P]


def _padded(n):
  return max(gla_tiles.SUB, pl.next_power_of_2(n))


def _at_end(axis, count):
  pads = [(0, 0)] * 5 if axis > 1 else [(0, 0)] * 4
  pads[axis] = 0, count
  return pads


def _chunk_length(plan):
  """Returns the steps of a chunk whose blocks take MEMORY."""
  of_keys, of_values = plan.K * (2 + plan.W), 2 * plan.P
  of_pairs, states = plan.block * (2 + 3 * plan.W), 2 * plan.K * plan.P
  step = of_keys + of_values + of_pairs + states // plan.block
  size = jnp.dtype(plan.stored).itemsize
  return max(LONGEST, MEMORY // (size * step * plan.B * plan.H))


def _chunks(plan, state, steps):
  """Runs all chunks, of the first axis of `steps`."""
  if len(steps[0]) == 1:
    state, y = _run(plan, state, *(x[0] for x in steps))
    return state, y[None]
  return jax.lax.scan(lambda state, x: _run(plan, state, *x), state, steps)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(plan, state, q, k, v, loga, *others):
  return _forward(plan, state, q, k, v, loga, *others)[0]


def _carry(plan, state, q, k, v, loga, *others):
  """Returns (Blocks, (u, the states S, the last one))."""
  blocks = kernel_blocks.prepare(plan, q, k, loga, *others)
  *given, by = blocks.writers
  return blocks, kernel_states.states(
    plan, state, blocks.decay, v, blocks.own, (blocks.weights, by), *given
  )


def _forward(plan, state, q, k, v, *others):
  blocks, (u, states, last) = _carry(plan, state, q, k, v, *others)
  pairs = list(zip(blocks.scores, _written(plan, v, u), strict=True))
  y = kernel_states.outputs(plan, blocks.readers, states, pairs)
  y = ad_checkpoint.checkpoint_name(y, KEPT)
  return (last, y), (state, q, k, v, *others)


def _written(plan, v, u):
  """Returns what each of the writers writes."""
  return (v, u) if plan.general else (u,)


def _backward(plan, residuals, cotangents):
  # Without a barrier, XLA merges what is recomputed with the forward pass and
  # stores it after all.
  residuals = jax.lax.optimization_barrier(residuals)
  state, q, k, v, loga, *others = residuals
  d_last, dy = cotangents
  blocks, (u, states, _) = _carry(plan, *residuals)
  e, d_states, d_state = kernel_states.states(
    plan,
    d_last,
    blocks.decay,
    dy,
    blocks.scores[-1],
    (blocks.writers[-1], blocks.weights),
    blocks.readers,
    reverse=True,
  )
  beta = None if plan.general else others[0]
  made = kernel_states.pairs(plan, blocks.inverse, e, dy, v, u, beta)
  if plan.general:
    d_scores = made
    given = [(blocks.own, e), (blocks.scores[0], dy)]
    dv = kernel_states.outputs(
      plan, blocks.writers[0], d_states, given, reverse=True
    )
  else:
    dv, d_beta, *d_scores = made
  dq, dk, d_loga, *d_others = kernel_gradients.gradients(
    plan,
    (q, k, loga, *others),
    blocks.inverse,
    (e, dy),
    (states, d_states),
    _written(plan, v, u),
    tuple(d_scores),
  )
  if not plan.general:
    d_others = [d_others[0] + d_beta]
  return d_state, dq, dk, dv, d_loga, *d_others


_run.defvjp(_forward, _backward)
