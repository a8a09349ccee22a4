"""Kernels over sub-blocks: read, write, total and scores.

The forward kernel computes the operands of the chunks' matmuls; the backward
kernel turns the gradients of these into those of q, k and log a.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops.gla.pallas import tiles


def _prepare_kernel(
  q_ref,
  k_ref,
  loga_ref,
  read_ref,
  write_ref,
  total_ref,
  scores_ref,
  *,
  plan,
):
  here = pl.program_id(0)
  q, k = tiles.rows(q_ref, here), tiles.rows(k_ref, here)
  loga = tiles.decays(loga_ref, here)
  since_start = tiles.from_start(loga)
  q_here = q * jnp.exp(since_start)

  def meet_earlier(n, gap):
    n = here - 1 - n
    logs = tiles.decays(loga_ref, n)
    keys = tiles.rows(k_ref, n) * jnp.exp(tiles.to_end(logs) + gap)
    scores = tiles.dot(plan, q_here, keys, (1, 1))
    scores_ref[:, pl.ds(n * tiles.SUB, tiles.SUB)] = scores.astype(
      scores_ref.dtype
    )
    return gap + tiles.whole(logs)

  def skip_later(n, gap):
    nothing = jnp.zeros((tiles.SUB, tiles.SUB), scores_ref.dtype)
    scores_ref[:, pl.ds(n * tiles.SUB, tiles.SUB)] = nothing
    return gap + tiles.whole(tiles.decays(loga_ref, n))

  nothing = jnp.zeros_like(tiles.whole(loga))
  earlier = jax.lax.fori_loop(0, here, meet_earlier, nothing)
  later = jax.lax.fori_loop(here + 1, plan.subs, skip_later, nothing)
  scores = _scores(plan, q, k, loga)
  scores_ref[:, pl.ds(here * tiles.SUB, tiles.SUB)] = scores.astype(
    scores_ref.dtype
  )
  read_ref[...] = (q * jnp.exp(since_start + earlier)).astype(read_ref.dtype)
  write = k * jnp.exp(tiles.to_end(loga) + later)
  write_ref[...] = write.astype(write_ref.dtype)
  total_ref[...] = tiles.whole(loga)


def prepare(
  plan: tiles.Plan, q: jax.Array, k: jax.Array, loga: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Returns (read, write, total, scores); see the package's docstring.

  read and write are BxLxHxK; total BxHx(L/16)x1xK, the sum of each sub-block's
  log-decays; scores BxHxLxC.
  """
  B, L, H, K, C = plan.B, plan.L, plan.H, plan.K, plan.chunk
  keys = (None, C, None, K), 'b n h 0'
  sub_block = (B, L, H, K), plan.stored, (None, tiles.SUB, None, K), 'b m h 0'
  read, write, total, scores = tiles.call(
    plan,
    _prepare_kernel,
    {'s': plan.subs, 'n': plan.N},
    [(q, *keys), (k, *keys), (loga, *keys)],
    [
      sub_block,
      sub_block,
      (
        (B, H, L // tiles.SUB, 1, K),
        jnp.float32,
        (None,) * 3 + (1, K),
        'b h m 0 0',
      ),
      ((B, H, L, C), plan.stored, (None, None, tiles.SUB, C), 'b h m 0'),
    ],
    warps=plan.warps if K <= 64 else 8,
  )
  return read, write, total, scores


# Scores within a sub-block.


def _scores(plan, q, k, loga):
  i, j = tiles.step_pairs()
  own = jnp.sum(q * k, axis=1, keepdims=True)
  scores = jnp.where(i == j, own, 0.0)
  for half in tiles.HALVES:
    q_late, k_early, *_, one_piece = tiles.decayed_to_border(q, k, loga, half)
    pairs = tiles.dot(plan, q_late, k_early, (1, 1))
    scores += jnp.where(one_piece, pairs, 0.0)
  return scores


def _scores_backward(plan, q, k, loga, d_scores):
  i, j = tiles.step_pairs()
  own = jnp.where(i == j, d_scores, 0.0)
  own = jnp.sum(own, axis=1, keepdims=True)
  dq, dk, d_loga = own * k, own * q, jnp.zeros_like(loga)
  for half in tiles.HALVES:
    decayed = tiles.decayed_to_border(q, k, loga, half)
    q_late, k_early, decay, late, one_piece = decayed
    d_pairs = jnp.where(one_piece, d_scores, 0.0)
    dq_late = jnp.where(late, decay * tiles.dot(plan, d_pairs, k_early), 0.0)
    dk_early = decay * tiles.dot(plan, d_pairs, q_late, (0, 0))
    dk_early = jnp.where(late, 0.0, dk_early)
    dq, dk = dq + dq_late, dk + dk_early
    # Transposed: from each step to its pairs.
    crossed = tiles.between_border_and(j, i, half)
    d_loga += tiles.sums(crossed, q * dq_late + k * dk_early)
  return dq, dk, d_loga


def _prepare_backward_kernel(
  q_ref,
  k_ref,
  loga_ref,
  d_scores_ref,
  d_read_ref,
  d_write_ref,
  d_total_ref,
  dq_ref,
  dk_ref,
  d_loga_ref,
  *,
  plan,
):
  here = pl.program_id(0)
  q, k = tiles.rows(q_ref, here), tiles.rows(k_ref, here)
  loga = tiles.decays(loga_ref, here)
  nothing, no_keys = (
    jnp.zeros_like(tiles.whole(loga)),
    jnp.zeros_like(tiles.whole(q)),
  )

  def d_scores_of(i, j):
    return d_scores_ref[
      pl.ds(i * tiles.SUB, tiles.SUB), pl.ds(j * tiles.SUB, tiles.SUB)
    ]

  def later_queries(n, gap):
    logs = tiles.decays(loga_ref, n)
    queries = tiles.rows(q_ref, n) * jnp.exp(tiles.from_start(logs) + gap)
    return queries, gap + tiles.whole(logs)

  def meet_earlier(n, carry):
    gap, dq, through, across = carry
    n = here - 1 - n
    logs = tiles.decays(loga_ref, n)
    keys = tiles.rows(k_ref, n) * jnp.exp(tiles.to_end(logs) + gap)

    def meet_across(i, carry):
      gap, across = carry
      queries, gap = later_queries(i, gap)
      return gap, across + tiles.whole(
        queries * tiles.dot(plan, d_scores_of(i, n), keys)
      )

    dq += tiles.dot(plan, d_scores_of(here, n), keys)
    through += tiles.whole(keys * tiles.rows(d_write_ref, n))
    _, across = jax.lax.fori_loop(
      here + 1, plan.subs, meet_across, (nothing, across)
    )
    return gap + tiles.whole(logs), dq, through, across

  def meet_later(n, carry):
    gap, dk, through = carry
    queries, next_gap = later_queries(n, gap)
    dk += tiles.dot(plan, d_scores_of(n, here), queries, (0, 0))
    through += tiles.whole(queries * tiles.rows(d_read_ref, n))
    return next_gap, dk, through

  earlier, dq, from_keys, across = jax.lax.fori_loop(
    0, here, meet_earlier, (nothing, jnp.zeros_like(q), no_keys, no_keys)
  )
  later, dk, to_queries = jax.lax.fori_loop(
    here + 1, plan.subs, meet_later, (nothing, jnp.zeros_like(k), no_keys)
  )
  # From pairs with one step in this sub-block, and from those around it.
  dq += tiles.rows(d_read_ref, here) * jnp.exp(earlier)
  dk += tiles.rows(d_write_ref, here) * jnp.exp(later)
  dq *= jnp.exp(tiles.from_start(loga))
  dk *= jnp.exp(tiles.to_end(loga))
  total = tiles.whole(loga)
  through = across * jnp.exp(total) + d_total_ref[...] * jnp.exp(
    earlier + total + later
  )
  through += from_keys * jnp.exp(total + later)
  through += to_queries * jnp.exp(earlier + total)
  d_loga = tiles.since(q * dq) + tiles.before(k * dk) + through
  d_scores = d_scores_of(here, here).astype(jnp.float32)
  dq_own, dk_own, d_loga_own = _scores_backward(plan, q, k, loga, d_scores)
  dq_ref[...] = (dq + dq_own).astype(dq_ref.dtype)
  dk_ref[...] = (dk + dk_own).astype(dk_ref.dtype)
  d_loga_ref[...] = d_loga + d_loga_own


def prepare_backward(
  plan: tiles.Plan,
  q: jax.Array,
  k: jax.Array,
  loga: jax.Array,
  d_scores: jax.Array,
  d_read: jax.Array,
  d_write: jax.Array,
  d_total: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the gradients of q, k and loga, in their shapes."""
  B, L, H, K, C = plan.B, plan.L, plan.H, plan.K, plan.chunk
  wide = min(K, tiles.BLOCK)
  keys = (None, C, None, wide), 'b n h i'
  sub_block = (None, tiles.SUB, None, wide), 'b m h i'
  shape = B, L, H, K
  dq, dk, d_loga = tiles.call(
    plan,
    _prepare_backward_kernel,
    {'s': plan.subs, 'i': K // wide, 'n': plan.N},
    [
      (q, *keys),
      (k, *keys),
      (loga, *keys),
      (d_scores, (None, None, C, C), 'b h n 0'),
      (d_read, *keys),
      (d_write, *keys),
      (d_total, (None, None, None, 1, wide), 'b h n 0 i'),
    ],
    [
      (shape, plan.stored, *sub_block),
      (shape, plan.stored, *sub_block),
      (shape, jnp.float32, *sub_block),
    ],
    warps=plan.warps,
  )
  return dq, dk, d_loga
