"""Kernels that read or write states, chunk by chunk or step by step."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops.gla.pallas import tiles

MANY = 256  # programs that keep a large GPU busy


def _states_kernel(
  state_ref, x_ref, v_ref, total_ref, states_ref, last_ref, *, plan, reverse
):
  def advance(n, state):
    n = plan.N - 1 - n if reverse else n
    states_ref[n, :, :] = state.astype(states_ref.dtype)
    total = jnp.sum(total_ref[pl.ds(n * plan.subs, plan.subs), :], axis=0)
    state = jnp.exp(total)[:, None] * state
    for steps in tiles.parts(plan, plan.chunk, n * plan.chunk):
      state += tiles.dot(plan, x_ref[steps, :], v_ref[steps, :], (0, 0))
    return state

  last_ref[...] = jax.lax.fori_loop(0, plan.N, advance, state_ref[...])


def states(
  plan: tiles.Plan,
  state: jax.Array,
  x: jax.Array,
  v: jax.Array,
  total: jax.Array,
  reverse: bool = False,
) -> tuple[jax.Array, jax.Array]:
  """Runs the state over all chunks.

  Args:
    plan: the shapes.
    state: BxHxKxP, before the first chunk.
    x: BxLxHxK, the left factor of each update.
    v: BxLxHxP, the right factor.
    total: log-decays of each sub-block, of `scores.prepare`.
    reverse: whether to run from the last chunk to the first.

  Returns:
    (the state before each chunk BxHxNxKxP, the last one BxHxKxP); before and
    last in the direction of the run.
  """
  B, L, H, K, P, N = plan.B, plan.L, plan.H, plan.K, plan.P, plan.N
  wide, high = _blocks(plan)
  tile = (None, None, wide, high), 'b h i p'
  every = (None, None, N, wide, high), 'b h 0 i p'
  before, last = tiles.call(
    plan,
    functools.partial(_states_kernel, reverse=reverse),
    {'i': K // wide, 'p': P // high},
    [
      (state, *tile),
      (x, (None, L, None, wide), 'b 0 h i'),
      (v, (None, L, None, high), 'b 0 h p'),
      (total, (None, None, L // tiles.SUB, None, wide), 'b h 0 0 i'),
    ],
    [
      # Matmuls read these, so they are in their format; the sum is float32.
      ((B, H, N, K, P), plan.stored, *every),
      ((B, H, K, P), jnp.float32, *tile),
    ],
    warps=4,
    stages=3,
  )
  return before, last


def _blocks(plan):
  """Returns one program's share of K and of P."""
  wide, high = min(plan.K, tiles.BLOCK), min(plan.P, tiles.BLOCK)
  programs = plan.B * plan.H * (plan.K // wide) * (plan.P // high)
  # Few sequences leave most of a GPU idle: split their states further.
  return (wide, high) if programs >= MANY else (min(wide, 32), min(high, 32))


def _outputs_kernel(
  x_ref, states_ref, scores_ref, v_ref, y_ref, *, plan, reverse
):
  y = jnp.zeros(y_ref.shape, jnp.float32)
  for steps in tiles.parts(plan, plan.chunk):
    if reverse:
      y += tiles.dot(plan, scores_ref[steps, :], v_ref[steps, :], (0, 0))
    else:
      y += tiles.dot(plan, scores_ref[:, steps], v_ref[steps, :])
  for keys in tiles.parts(plan, plan.K):
    y += tiles.dot(plan, x_ref[:, keys], states_ref[keys, :])
  y_ref[...] = y.astype(y_ref.dtype)


def outputs(
  plan: tiles.Plan,
  x: jax.Array,
  states: jax.Array,
  scores: jax.Array,
  v: jax.Array,
  reverse: bool = False,
) -> jax.Array:
  """Returns x state + scores v, BxLxHxP; transposed scores if `reverse`."""
  K, C, high = plan.K, plan.chunk, min(plan.P, tiles.BLOCK)
  steps = (None, C, None, high), 'b n h p'
  return tiles.call(
    plan,
    functools.partial(_outputs_kernel, reverse=reverse),
    {'n': plan.N, 'p': plan.P // high},
    [
      (x, (None, C, None, K), 'b n h 0'),
      (states, (None, None, None, K, high), 'b h n 0 p'),
      (scores, (None, None, C, C), 'b h n 0'),
      (v, *steps),
    ],
    [((plan.B, plan.L, plan.H, plan.P), plan.stored, *steps)],
    warps=plan.warps,
    stages=2,
  )[0]


def _score_gradients_kernel(dy_ref, v_ref, d_scores_ref, *, plan):
  shape = plan.chunk, plan.chunk
  d_scores = jnp.zeros(shape, jnp.float32)
  for columns in tiles.parts(plan, plan.P):
    d_scores += tiles.dot(plan, dy_ref[:, columns], v_ref[:, columns], (1, 1))
  i, j = (jax.lax.broadcasted_iota(jnp.int32, shape, n) for n in (0, 1))
  d_scores = jnp.where(j <= i, d_scores, 0.0)
  d_scores_ref[...] = d_scores.astype(d_scores_ref.dtype)


def score_gradients(plan: tiles.Plan, dy: jax.Array, v: jax.Array) -> jax.Array:
  """Returns the gradients of the scores, BxHxLxC."""
  C = plan.chunk
  steps = (None, C, None, plan.P), 'b n h 0'
  pairs = (None, None, C, C), 'b h n 0'
  return tiles.call(
    plan,
    _score_gradients_kernel,
    {'n': plan.N},
    [(dy, *steps), (v, *steps)],
    [((plan.B, plan.H, plan.L, C), plan.stored, *pairs)],
    warps=plan.warps,
    stages=2,
  )[0]


def _meetings_kernel(
  dy_ref,
  v_ref,
  states_ref,
  d_states_ref,
  d_read_ref,
  d_write_ref,
  d_total_ref,
  *,
  plan,
):
  d_read = d_write = jnp.zeros(d_read_ref.shape, jnp.float32)
  d_total = jnp.zeros(d_total_ref.shape, jnp.float32)
  for columns in tiles.parts(plan, plan.P):
    state, d_state = states_ref[:, columns], d_states_ref[:, columns]
    d_read += tiles.dot(plan, dy_ref[:, columns], state, (1, 1))
    d_write += tiles.dot(plan, v_ref[:, columns], d_state, (1, 1))
    product = state.astype(jnp.float32) * d_state.astype(jnp.float32)
    d_total += jnp.sum(product, axis=1)[None, :]
  d_read_ref[...], d_write_ref[...] = d_read, d_write
  d_total_ref[...] = d_total


def meetings(
  plan: tiles.Plan,
  dy: jax.Array,
  v: jax.Array,
  states: jax.Array,
  d_states: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the gradients of read and write, BxLxHxK, and of total."""
  B, L, H, K, P, C = plan.B, plan.L, plan.H, plan.K, plan.P, plan.chunk
  wide = min(K, tiles.BLOCK)
  steps = (None, C, None, P), 'b n h 0'
  state = (None, None, None, wide, P), 'b h n i 0'
  keys = (B, L, H, K), jnp.float32, (None, C, None, wide), 'b n h i'
  total = (None, None, None, 1, wide), 'b h n 0 i'
  d_read, d_write, d_total = tiles.call(
    plan,
    _meetings_kernel,
    {'n': plan.N, 'i': K // wide},
    [(dy, *steps), (v, *steps), (states, *state), (d_states, *state)],
    [keys, keys, ((B, H, plan.N, 1, K), jnp.float32, *total)],
    warps=plan.warps,
    stages=2,
  )
  return d_read, d_write, d_total


def _steps_kernel(
  state_ref, q_ref, k_ref, v_ref, loga_ref, last_ref, y_ref, *, plan
):
  def step(t, state):
    q, k, v, loga = (
      ref[t, :].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref, loga_ref)
    )
    decay = jnp.exp(jnp.maximum(loga, tiles.FORGOTTEN))
    state = decay[:, None] * state + k[:, None] * v[None, :]
    y_ref[t, :] = jnp.sum(q[:, None] * state, axis=0).astype(y_ref.dtype)
    return state

  last_ref[...] = jax.lax.fori_loop(0, plan.L, step, state_ref[...])


def steps(
  plan: tiles.Plan,
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Returns (state BxHxKxP, y BxLxHxP), step by step with S in registers."""
  B, L, H, K, P = plan.B, plan.L, plan.H, plan.K, plan.P
  high = min(P, 32)
  tile = (None, None, K, high), 'b h 0 p'
  keys = (None, L, None, K), 'b 0 h 0'
  values = (None, L, None, high), 'b 0 h p'
  last, y = tiles.call(
    plan,
    _steps_kernel,
    {'p': P // high},
    [
      (state, *tile),
      (q, *keys),
      (k, *keys),
      (v, *values),
      (loga, *keys),
    ],
    [
      ((B, H, K, P), jnp.float32, *tile),
      ((B, L, H, P), plan.stored, *values),
    ],
    warps=4,
  )
  return last, y
