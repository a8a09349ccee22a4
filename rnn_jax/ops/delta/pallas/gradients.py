"""A kernel over keys: their gradients, from those of states and scores.

With f the gradient of the rows before the inverse, S the state before a block
and D the gradient of that after it,

    f = T^T e        d_readers = dy S^T        d_writers = rows D^T
    d_r~ = -f S^T        d_decay = sum_P S * D

and the gradients of scores follow from states.pairs. A log-decay's gradient is
the sum over what it decays, every term with that decay as a factor; the
difference of sums of q dq and k dk would have rounding errors at gates of 0.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops.delta.pallas import blocks
from rnn_jax.ops.delta.pallas import tiles
from rnn_jax.ops.gla.pallas import tiles as gla_tiles


class _Sums(NamedTuple):
  """Sums of the gradients of a tile of keys."""

  q: Any
  r: Any
  writers: tuple[Any, ...]
  loga: Any

  def plus(self, q, r, writers, loga):
    writers = (x + y for x, y in zip(self.writers, writers, strict=True))
    return _Sums(self.q + q, self.r + r, tuple(writers), self.loga + loga)


def _of_products(plan, reader, writers, scores, d_reader, d_writers):
  """Adds the gradients of a reader and each w, as they were multiplied.

  Args:
    plan: the shapes.
    reader: the factor of q, or of r.
    writers: the factors of each w.
    scores: the gradients of their products.
    d_reader: a sum.
    d_writers: a sum for each w.

  Returns:
    (d_reader, d_writers).
  """
  for n, (w, d) in enumerate(zip(writers, scores, strict=True)):
    factor = tiles.split(d, plan.parts)
    d_reader += tiles.product(factor, w)
    d_writers[n] += tiles.product(factor, reader, (0, 0))
  return d_reader, d_writers


def _decayed(plan, x, masks, decays, gradients):
  """Returns the _Sums of what masks decay.

  Args:
    plan: the shapes.
    x: the blocks.Keys.
    masks: the steps that decay row i of q, of r and of the writers.
    decays: by these.
    gradients: of q, r and each w, decayed.
  """
  (of_q, of_r, of_w), (dq, dr, d_writers) = decays, gradients
  dq, dr, d_writers = of_q * dq, of_r * dr, tuple(of_w * d for d in d_writers)
  terms = (
    x.q * dq,
    x.r * dr,
    sum(w * d for w, d in zip(x.writers, d_writers, strict=True)),
  )
  by_mask: dict[int, tuple[Any, Any]] = {}
  for mask, term in zip(masks, terms, strict=True):
    _, before = by_mask.get(id(mask), (mask, 0.0))
    by_mask[id(mask)] = mask, before + term
  loga = 0.0
  for mask, term in by_mask.values():
    by_step = jnp.sum(term, axis=1, keepdims=True) if plan.by_head else term
    loga += tiles.sums(plan, mask, by_step, transposed=True)
  return _Sums(dq, dr, d_writers, loga)


def _add_pairs_by_key(plan, x, refs, sums):
  """Adds what follows from the gradients of scores."""
  i, j = tiles.step_pairs(plan)
  nothing = jnp.zeros((), plan.stored)

  def load(refs, seen):
    return [jnp.where(seen, ref[...], nothing) for ref in refs]

  of_q, of_r = refs[: plan.W], refs[plan.W :]
  own = [
    jnp.sum(d.astype(jnp.float32), axis=1, keepdims=True)
    for d in load(of_q, i == j)
  ]
  dq = sum(d * w for d, w in zip(own, x.writers, strict=True))
  sums = sums.plus(dq, 0.0, [d * x.q for d in own], 0.0)

  def add(level, sums):
    pairs, masks = blocks.border(plan, level)
    decays = blocks.decays(plan, masks, x.loga)
    q, r, writers = blocks.factors(plan, x, decays)
    dq, d_writers = _of_products(
      plan, q, writers, load(of_q, pairs), 0.0, [0.0] * plan.W
    )
    dr, d_writers = _of_products(
      plan, r, writers, load(of_r, pairs), 0.0, d_writers
    )
    gradients = dq, dr, d_writers
    return sums.plus(*_decayed(plan, x, masks, decays, gradients))

  return jax.lax.fori_loop(0, blocks.levels(plan), add, sums)


def _add_pairs_by_head(plan, x, refs, sums):
  """Adds what follows from the gradients of scores."""
  *readers, writers = blocks.factors(plan, x, (1.0, 1.0, 1.0))
  i, j = tiles.step_pairs(plan)
  of_reader, d_writers, loga = [], list(sums.writers), sums.loga
  for reader, decay, mask, refs_of, d_reader in zip(
    readers,
    blocks.between(plan, x.loga),
    blocks.to_ends(plan)[:2],
    (refs[: plan.W], refs[plan.W :]),
    (sums.q, sums.r),
    strict=True,
  ):
    scores = [decay * ref[...].astype(jnp.float32) for ref in refs_of]
    total, d_writers = _of_products(
      plan, reader, writers, scores, d_reader, d_writers
    )
    of_reader.append(total)
    crossed = sum(
      d * tiles.product(reader, w, (1, 1))
      for d, w in zip(scores, writers, strict=True)
    )
    # From a pair i, j to all t with j < t <= i, or t < i.
    crossed = jnp.where(i > j, crossed, 0.0)
    later = tiles.sums(plan, mask, crossed, transposed=True)
    loga += jnp.sum(jnp.where(j < i, later, 0.0), axis=1, keepdims=True)
  return _Sums(*of_reader, tuple(d_writers), loga)


def _delta_gradients(*refs, plan):
  count = len(plan.inputs)
  inputs, refs = refs[:count], refs[count:]
  inverse_ref, e_ref, dy_ref, states_ref, d_states_ref, *refs = refs
  rows_refs, refs = refs[: plan.W], refs[plan.W :]
  scores_refs, results_refs = refs[: 2 * plan.W], refs[2 * plan.W :]
  inverse = tiles.split(inverse_ref[...], plan.parts)

  def meet(n, sums):
    columns = tiles.part(n, plan.high)

    def load(ref):
      return tiles.split(ref[:, columns], plan.parts)

    total, dq, dr, *d_writers = sums
    kept, d_kept = (
      ref[:, columns].astype(jnp.float32) for ref in (states_ref, d_states_ref)
    )
    total += jnp.sum(kept * d_kept, axis=1)
    state, d_state = load(states_ref), load(d_states_ref)
    dq += tiles.product(load(dy_ref), state, (1, 1))
    before = tiles.product(inverse, load(e_ref), (0, 0))
    dr -= tiles.product(tiles.split(before, plan.parts), state, (1, 1))
    for m, ref in enumerate(rows_refs):
      d_writers[m] += tiles.product(load(ref), d_state, (1, 1))
    return total, dq, dr, *d_writers

  nothing = jnp.zeros((plan.block, plan.narrow), jnp.float32)
  total = jnp.zeros((plan.narrow,), jnp.float32)
  total, dq, dr, *d_writers = tiles.loop(
    plan.P // plan.high, meet, (total, *[nothing] * (2 + plan.W))
  )
  x = blocks.load(plan, inputs, slice(None))
  masks = blocks.to_ends(plan)
  decays = blocks.decays(plan, masks, x.loga)
  sums = _decayed(plan, x, masks, decays, (dq, dr, d_writers))
  total *= jnp.exp(jnp.sum(x.loga, axis=0))
  total = jnp.sum(total) if plan.by_head else total[None]
  sums = sums._replace(loga=sums.loga + total)
  add = _add_pairs_by_head if plan.by_head else _add_pairs_by_key
  sums = add(plan, x, scores_refs, sums)
  k, *others = sums.writers
  if plan.general:
    others = -sums.r, *others
  else:
    k += inputs[-1][...] * sums.r
    others = (jnp.sum(sums.r * x.writers[0], axis=1, keepdims=True),)
  results = sums.q, k, sums.loga, *others
  for ref, result in zip(results_refs, results, strict=True):
    ref[...] = result.astype(ref.dtype)


def gradients(
  plan: tiles.Plan,
  inputs: tuple[jax.Array, ...],
  inverse: jax.Array,
  of_values: tuple[jax.Array, jax.Array],
  of_states: tuple[jax.Array, jax.Array],
  rows: tuple[jax.Array, ...],
  d_scores: tuple[jax.Array, ...],
) -> list[jax.Array]:
  """Returns the gradients of the inputs; that of beta lacks what v has.

  Args:
    plan: the shapes.
    inputs: of blocks.prepare.
    inverse: T, BxLxHxC.
    of_values: (e, dy), BxLxHxP.
    of_states: (S, D), BxNxHxKxP.
    rows: what each of the writers wrote, BxLxHxP.
    d_scores: of states.pairs.
  """
  C, P, wide = plan.block, plan.P, plan.narrow
  of_rows = (None, C, None, P), 'b n h 0'
  of_pairs = (None, C, None, C), 'b n h 0'
  state = (None, None, None, wide, P), 'b n h i 0'
  given, results = [], []
  for x in inputs:
    is_column = x.shape[-1] < plan.K
    block = None, C, None, 1 if is_column else wide
    given.append((x, block, f'b n h {"0" if is_column else "i"}'))
    # Of one number of a head, each tile of keys has a term.
    width = plan.K // wide if is_column else plan.K
    results.append(((*x.shape[:3], width), x.dtype, block, 'b n h i'))
  made = gla_tiles.call(
    plan,
    _delta_gradients,
    {'i': plan.K // wide, 'n': plan.N},
    [
      *given,
      (inverse, *of_pairs),
      *((x, *of_rows) for x in of_values),
      *((x, *state) for x in of_states),
      *((x, *of_rows) for x in rows),
      *((x, *of_pairs) for x in d_scores),
    ],
    results,
    warps=plan.warps,
  )
  return [
    y if y.shape == x.shape else jnp.sum(y, -1, keepdims=True)
    for x, y in zip(inputs, made, strict=True)
  ]
