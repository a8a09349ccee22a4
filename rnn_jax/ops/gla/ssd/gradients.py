"""Kernels over chunks: the gradients that heads add up, and those of decays.

With S the state before a chunk, D the gradient of that after it, and what is of
one head marked by h,

    pairs_h = dy v^T * between               near_h = pairs * q k^T
    into = since * q S                       out = until * k D
    dq = sum_h since dy S^T + (sum_h pairs_h r) k
    dk = sum_h r until v D^T + (sum_h pairs_h r)^T q
    dr_j = v_j out_j + sum_i near_ij         dd = sum_i dy_i v_i

so that the products of pairs with queries and keys are of a group, not of a
head. The gradient of a log-decay at t is the sum over what it decays, every
term with that decay as a factor:

    sum_{j < t <= i} near_ij r_j + sum_{i >= t} dy_i into_i
      + sum_{j < t} r_j v_j out_j + total sum S * D

`pairs` has what needs no state, `keys` the rest, in tiles of keys.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops.gla.pallas import tiles as gla_tiles
from rnn_jax.ops.gla.ssd import tiles


def _columns(plan):
  """Returns the indices of tiles of values."""
  high = min(plan.P, tiles.HIGH)
  return [pl.ds(n, high) for n in range(0, plan.P, high)]


def _met(tiles_of_two):
  """Returns the sum of x * y over tiles (x_ref, y_ref, index), one by one."""
  total = jnp.zeros((), jnp.float32)
  for x_ref, y_ref, index in tiles_of_two:
    total += jnp.sum(x_ref[index].astype(jnp.float32) * y_ref[index])
  return total


def _ssd_pairs(*refs, plan):
  q_ref, k_ref, v_ref, dy_ref, loga_ref, rate_ref, *refs = refs
  pairs_ref, d_loga_ref, d_rate_ref, d_skip_ref = refs
  dot = functools.partial(gla_tiles.dot, plan)
  i, j = tiles.step_pairs(plan)
  # Rounded as factors of matmuls are, since registers are scarce.
  met = dot(q_ref[...], k_ref[...], (1, 1)).astype(plan.stored)

  def add(h, pairs):
    between, rate = tiles.between(plan, loga_ref[h, :]), rate_ref[h, :]
    own = jnp.zeros_like(pairs)
    for of_values in _columns(plan):
      own += dot(dy_ref[:, h, of_values], v_ref[:, h, of_values], (1, 1))
    own *= between
    pairs += own * rate[None]
    near = own * met
    d_rate_ref[:, h] = jnp.sum(near, axis=0)
    later = jnp.where(i > j, near * rate[None], 0.0)
    later = gla_tiles.sums(j >= i, later, plan.parts)  # from i on, in row t
    d_loga_ref[:, h] = jnp.sum(jnp.where(j < i, later, 0.0), axis=1)
    d_skip_ref[h] = _met(
      [(dy_ref, v_ref, (slice(None), h, x)) for x in _columns(plan)]
    )
    return pairs

  nothing = jnp.zeros((plan.chunk, plan.chunk), jnp.float32)
  pairs = jax.lax.fori_loop(0, plan.heads, add, nothing)
  pairs_ref[...] = pairs


def _ssd_keys(*refs, plan):
  pairs_ref, q_ref, k_ref, v_ref, dy_ref, loga_ref, rate_ref, *refs = refs
  states_ref, d_states_ref, dq_ref, dk_ref, d_loga_ref, d_rate_ref = refs
  dot = functools.partial(gla_tiles.dot, plan)
  i, j = tiles.step_pairs(plan)

  def add(h, sums):
    dq, dk = sums
    rate = rate_ref[h, :]
    since, until, total = tiles.to_ends(plan, loga_ref[h, :])
    read = write = jnp.zeros((plan.chunk,), jnp.float32)
    for of_values in _columns(plan):
      v, dy = v_ref[:, h, of_values], dy_ref[:, h, of_values]
      here = h, slice(None), of_values
      state, d_state = states_ref[here], d_states_ref[here]
      seen, kept = since[:, None] * dy, until[:, None] * v
      dq += dot(seen, state, (1, 1))
      read += jnp.sum(dot(q_ref[...], state) * seen, axis=1)
      dk += dot(rate[:, None] * kept, d_state, (1, 1))
      write += jnp.sum(dot(k_ref[...], d_state) * kept, axis=1)
    d_rate_ref[:, h] = write
    few = min(q_ref.shape[1], tiles.HIGH // 2)
    met = _met(
      [
        (states_ref, d_states_ref, (h, pl.ds(n, few), x))
        for n in range(0, q_ref.shape[1], few)
        for x in _columns(plan)
      ]
    )
    across = jnp.where(j < i, (rate * write)[None], read[None])
    d_loga_ref[:, h] = jnp.sum(across, axis=1) + total * met
    return dq, dk

  nothing = jnp.zeros(q_ref.shape, jnp.float32)
  dq, dk = jax.lax.fori_loop(0, plan.heads, add, (nothing, nothing))
  pairs = pairs_ref[...]
  dq_ref[...] = dq + dot(pairs, k_ref[...])
  dk_ref[...] = dk + dot(pairs, q_ref[...], (0, 0))


def gradients(
  plan: tiles.Plan,
  inputs: tiles.Inputs,
  dy: jax.Array,
  dv: jax.Array,
  logs: tuple[jax.Array, jax.Array],
  states: jax.Array,
  d_states: jax.Array,
) -> tiles.Inputs:
  """Returns the gradients of the inputs, in their shapes.

  Args:
    plan: the shapes.
    inputs: as of the forward pass.
    dy: BxLxHxP.
    dv: BxLxHxP, the gradient of v.
    logs: (log a, the rate), BxHxL.
    states: S, BxHxNxKxP.
    d_states: D, in the same shape.
  """
  B, L, H, N, K, P, C = *plan[2:5], plan.N, plan.K, plan.P, plan.chunk
  q, k, v, *_ = inputs
  heads, exact, wide = plan.heads, jnp.float32, min(K, tiles.HIGH)
  rows = (None, C, heads, P), 'b n h 0'
  by_step = (None, C, heads), 'b n h'
  by_head = (None, heads, C), 'b h n'
  of_steps = (v, *rows), (dy, *rows), *((x, *by_head) for x in logs)
  of_pairs = (None, C, None, C), 'b n h 0'
  call = functools.partial(gla_tiles.call, plan, warps=4, heads=heads)
  pairs, near_loga, near_rate, d_skip = call(
    _ssd_pairs,
    {'n': N},
    [*((x, (None, C, None, K), 'b n g 0') for x in (q, k)), *of_steps],
    [
      ((B, L, H // heads, C), exact, *of_pairs),
      *[((B, L, H), exact, *by_step)] * 2,
      ((B, N, H), exact, (None, None, heads), 'b n h'),
    ],
  )
  of_keys = None, C, None, wide
  kept = (None, heads, None, wide, P), 'b h n i 0'
  numbers = (K // wide, B, L, H), exact, (None, None, C, heads), 'i b n h'
  dq, dk, d_loga, d_rate = call(
    _ssd_keys,
    {'i': K // wide, 'n': N},
    [
      (pairs, *of_pairs),
      *((x, of_keys, 'b n g i') for x in (q, k)),
      *of_steps,
      (states, *kept),
      (d_states, *kept),
    ],
    [
      *[((B, L, H // heads, K), exact, of_keys, 'b n h i')] * 2,
      *[numbers] * 2,
    ],
  )
  dq, dk = (
    x.reshape(B, L, plan.G, -1, K).sum(3).astype(plan.stored) for x in (dq, dk)
  )
  d_loga, d_rate = d_loga.sum(0) + near_loga, d_rate.sum(0) + near_rate
  return tiles.Inputs(dq, dk, dv, d_loga, d_rate, d_skip.sum((0, 1)))
