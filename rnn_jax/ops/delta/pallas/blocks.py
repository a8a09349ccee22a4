"""A kernel over keys: what a block of steps is to a state.

With d(s, t] the product of the decays after s up to t, and 0 and C the ends of
a block, for any reader r and writer w:

    scores_ij = sum_K r_i w_j d(j, i]      readers_i = r_i d(0, i]
    decay = d(0, C]                        writers_j = w_j d(j, C]

What reads the state before its decay, r of the general form, has d(j, i - 1]
and d(0, i - 1]. Nothing is divided, and no exponent is positive: between any
two steps there is one border, in the middle of the block, of its halves, and so
on; the later step is decayed from it and the earlier one up to it. With a decay
for each head there is one matrix of the decays between all pairs.

The inverse T of I + R joins halves the same way: R's part across the borders of
one level, between the inverses after and before it, is the inverse's.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops.delta.pallas import tiles
from rnn_jax.ops.gla.pallas import tiles as gla_tiles


class Blocks(NamedTuple):
  """What all blocks are to a state; see the package's docstring.

  Attributes:
    decay: b, BxNxHxK.
    readers: q~, BxLxHxK.
    weights: BxLxHxK.
    own: M, BxLxHxC.
    inverse: T, BxLxHxC.
    writers: w~, W of BxLxHxK.
    scores: A, W of BxLxHxC.
  """

  decay: jax.Array
  readers: jax.Array
  weights: jax.Array
  own: jax.Array
  inverse: jax.Array
  writers: tuple[jax.Array, ...]
  scores: tuple[jax.Array, ...]


class Keys(NamedTuple):
  """A tile of keys: q, r and each w CxK', log-decays CxK' or Cx1.

  r is what is subtracted: beta k, or minus what the general form reads by.
  """

  q: jax.Array
  r: jax.Array
  writers: tuple[jax.Array, ...]
  loga: jax.Array


Masks = tuple[jax.Array, jax.Array, jax.Array]  # of q, of r, of the writers


def load(plan: tiles.Plan, refs: Sequence[Any], keys: Any) -> Keys:
  """Returns the Keys in some columns of the inputs."""
  q_ref, k_ref, loga_ref, *others = refs
  logs = loga_ref[...] if plan.by_head else loga_ref[:, keys]
  q, k = (ref[:, keys].astype(jnp.float32) for ref in (q_ref, k_ref))
  if plan.general:
    read, write = (ref[:, keys].astype(jnp.float32) for ref in others)
    r, writers = -read, [k, write]
  else:
    r, writers = others[0][...] * k, [k]
  loga = jnp.maximum(logs, gla_tiles.FORGOTTEN)
  return Keys(q, r, tuple(writers), loga)


def to_ends(plan: tiles.Plan) -> Masks:
  """Returns the steps that decay row i to or from the ends of its block."""
  i, t = tiles.step_pairs(plan)
  since = t <= i
  return since, t < i if plan.general else since, t > i


def border(plan: tiles.Plan, level: Any) -> tuple[jax.Array, Masks]:
  """Returns the pairs of steps across borders, and the steps to a border."""
  i, j = tiles.step_pairs(plan)
  shift = jnp.int32(levels(plan) - 1) - jnp.int32(level)
  i_half, j_half = (jax.lax.shift_right_logical(x, shift) for x in (i, j))
  late = (i_half & 1) != 0
  # The half before a late one; to an early one, none has the number after it.
  pairs = jnp.where(late, i_half - 1, -1) == j_half
  first = jax.lax.shift_left(i_half, shift)
  end = first + jax.lax.shift_left(jnp.int32(1), shift)
  steps = (j >= jnp.where(late, first, i + 1)) & (
    j < jnp.where(late, i + 1, end)
  )
  before = (j >= first) & (j < i) if plan.general else steps
  return pairs, (steps, before, steps)


def levels(plan: tiles.Plan) -> int:
  """Returns how many borders there are, one in the other."""
  return plan.block.bit_length() - 1


def decays(plan: tiles.Plan, masks: Sequence[Any], logs: Any) -> list[Any]:
  """Returns the decays by the steps of each mask; the same one counts once."""
  made = {}
  for mask in masks:
    if id(mask) not in made:
      made[id(mask)] = jnp.exp(tiles.sums(plan, mask, logs))
  return [made[id(mask)] for mask in masks]


def between(plan: tiles.Plan, loga: jax.Array) -> list[jax.Array]:
  """Returns the decays between all pairs of steps, for q and for r, CxC.

  Of the delta rule both are the same, with the diagonal, which R has not.
  """
  i, j = tiles.step_pairs(plan)
  logs = jnp.where(i > j, loga, 0.0)  # a column for each j
  of_q, of_r = decays(plan, to_ends(plan)[:2], logs)
  of_q = jnp.where(j <= i, of_q, 0.0)
  return [of_q, jnp.where(j < i, of_r, 0.0) if plan.general else of_q]


def factors(plan: tiles.Plan, x: Keys, by: Sequence[Any]) -> tuple:
  """Returns the factors of q, r and each w, multiplied by decays."""
  of_q, of_r, of_w = by
  q, r = (
    tiles.split(x.q * of_q, plan.parts),
    tiles.split(x.r * of_r, plan.parts),
  )
  return q, r, [tiles.split(w * of_w, plan.parts) for w in x.writers]


def _scores_by_key(plan, x):
  i, j = tiles.step_pairs(plan)
  own = [jnp.sum(x.q * w, axis=1, keepdims=True) for w in x.writers]
  scores = [jnp.where(i == j, of_step, 0.0) for of_step in own]
  scores += [jnp.zeros(scores[0].shape, jnp.float32)] * plan.W

  def add(level, scores):
    pairs, masks = border(plan, level)
    q, r, writers = factors(plan, x, decays(plan, masks, x.loga))
    met = [tiles.product(y, w, (1, 1)) for y in (q, r) for w in writers]
    return tuple(
      s + jnp.where(pairs, m, 0.0) for s, m in zip(scores, met, strict=True)
    )

  return jax.lax.fori_loop(0, levels(plan), add, tuple(scores))


def _scores_by_head(plan, x):
  q, r, writers = factors(plan, x, (1.0, 1.0, 1.0))
  return tuple(
    decay * tiles.product(y, w, (1, 1))
    for y, decay in zip((q, r), between(plan, x.loga), strict=True)
    for w in writers
  )


def _invert(plan, scores):
  """Returns the inverse of I + scores, which are below the diagonal."""
  exact = max(plan.parts, 2)  # errors grow with each level
  i, j = tiles.step_pairs(plan)

  def join(n, inverse):
    pairs, _ = border(plan, levels(plan) - 1 - n)
    across = tiles.split(jnp.where(pairs, scores, 0.0), exact)
    factor = tiles.split(inverse, exact)
    later = tiles.split(tiles.product(factor, across), exact)
    return inverse - tiles.product(later, factor)

  identity = jnp.where(i == j, 1.0, 0.0)
  return jax.lax.fori_loop(0, levels(plan), join, identity)


def _delta_prepare(*refs, plan):
  count = len(plan.inputs)
  inputs, refs = refs[:count], refs[count:]
  decay_ref, readers_ref, weights_ref, own_ref, inverse_ref, *refs = refs
  writers_refs, scores_refs = refs[: plan.W], refs[plan.W :]
  scores_of = _scores_by_head if plan.by_head else _scores_by_key
  tiles_of_keys, masks = plan.K // plan.wide, to_ends(plan)

  def add(n, scores):
    keys = tiles.part(n, plan.wide)
    x = load(plan, inputs, keys)
    of_q, of_w = decays(plan, masks[::2], x.loga)
    readers_ref[:, keys] = (x.q * of_q).astype(plan.stored)
    for ref, w in zip(writers_refs, x.writers, strict=True):
      ref[:, keys] = (w * of_w).astype(plan.stored)
    total = jnp.exp(jnp.sum(x.loga, axis=0))
    decay_ref[keys] = jnp.broadcast_to(total, (plan.wide,))
    # Beta is a factor of their sums: one tile less in registers.
    of_r = x.r if plan.general else x.writers[0]
    met = scores_of(plan, x._replace(r=of_r))
    return tuple(s + m for s, m in zip(scores, met, strict=True))

  nothing = jnp.zeros((plan.block, plan.block), jnp.float32)
  scores = tiles.loop(tiles_of_keys, add, (nothing,) * (2 * plan.W))
  for ref, of_q in zip(scores_refs, scores, strict=False):
    ref[...] = of_q.astype(ref.dtype)
  beta = 1.0 if plan.general else inputs[-1][...]
  inverse = _invert(plan, beta * scores[-1])
  inverse_ref[...] = inverse.astype(inverse_ref.dtype)
  factor = tiles.split(inverse, plan.parts)
  if plan.general:
    own = -tiles.product(factor, tiles.split(scores[-2], plan.parts))
  else:
    own = inverse * beta.reshape(1, plan.block)
  own_ref[...] = own.astype(own_ref.dtype)

  def weigh(n, done):
    keys = tiles.part(n, plan.wide)
    x = load(plan, inputs, keys)
    (decay,) = decays(plan, masks[1:2], x.loga)
    weights = -tiles.product(factor, tiles.split(x.r * decay, plan.parts))
    weights_ref[:, keys] = weights.astype(weights_ref.dtype)
    return done

  tiles.loop(tiles_of_keys, weigh, 0)


def prepare(plan: tiles.Plan, *inputs: jax.Array) -> Blocks:
  """Returns the Blocks of q, k, loga, and of beta or of r and w."""
  B, L, H, K, C = plan.B, plan.L, plan.H, plan.K, plan.block
  keys = (B, L, H, K), plan.stored, (None, C, None, K), 'b n h 0'
  pairs = (B, L, H, C), plan.stored, (None, C, None, C), 'b n h 0'
  decay = (B, plan.N, H, K), jnp.float32, (None, None, None, K), 'b n h 0'
  made = gla_tiles.call(
    plan,
    _delta_prepare,
    {'n': plan.N},
    [(x, (None, C, None, x.shape[-1]), 'b n h 0') for x in inputs],
    [decay, keys, keys, pairs, pairs, *[keys] * plan.W, *[pairs] * plan.W],
    warps=plan.warps,
  )
  b, readers, weights, own, inverse, *others = made
  writers, scores = tuple(others[: plan.W]), tuple(others[plan.W :])
  return Blocks(b, readers, weights, own, inverse, writers, scores)
