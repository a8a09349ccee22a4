"""Kernels over values: the state from block to block, outputs, pairs of steps.

The equations are in the package's docstring.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.ops.delta.pallas import tiles
from rnn_jax.ops.gla.pallas import tiles as gla_tiles

TILE = gla_tiles.BLOCK


def _delta_states(
  state_ref,
  decay_ref,
  x_ref,
  own_ref,
  weights_ref,
  writers_ref,
  *refs,
  plan,
  reverse,
):
  *given, rows_ref, states_ref, last_ref = refs
  tiles_of_keys = [
    tiles.part(n, min(plan.K, TILE)) for n in range(-(-plan.K // TILE))
  ]

  def load(ref, *at):
    return tiles.split(ref[at], plan.parts)

  def advance(n, state):
    n = plan.N - 1 - n if reverse else n
    steps = tiles.part(n, plan.block)
    x = load(x_ref, steps, slice(None))
    own = load(own_ref, steps, slice(None))
    rows = tiles.product(own, x, (0 if reverse else 1, 0))
    for keys, tile in zip(tiles_of_keys, state, strict=True):
      states_ref[n, keys, :] = tile.astype(states_ref.dtype)
      factor = tiles.split(tile, plan.parts)
      rows += tiles.product(load(weights_ref, steps, keys), factor)
    rows_ref[steps, :] = rows.astype(rows_ref.dtype)
    factor = tiles.split(rows, plan.parts)
    new = []
    for keys, tile in zip(tiles_of_keys, state, strict=True):
      written = tiles.product(load(writers_ref, steps, keys), factor, (0, 0))
      for ref in given:
        written += tiles.product(load(ref, steps, keys), x, (0, 0))
      new.append(decay_ref[n, keys][:, None] * tile + written)
    return tuple(new)

  state = tuple(state_ref[keys, :] for keys in tiles_of_keys)
  state = jax.lax.fori_loop(0, plan.N, advance, state)
  for keys, tile in zip(tiles_of_keys, state, strict=True):
    last_ref[keys, :] = tile


def states(
  plan: tiles.Plan,
  state: jax.Array,
  decay: jax.Array,
  x: jax.Array,
  own: jax.Array,
  chained: tuple[jax.Array, jax.Array],
  given: jax.Array | None = None,
  reverse: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Runs the state S over all blocks.

      rows = own x + weights S        S <- diag(decay) S + writers^T rows
                                              + given^T x

  Args:
    plan: the shapes.
    state: BxHxKxP, before the first block.
    decay: BxNxHxK.
    x: BxLxHxP.
    own: BxLxHxC, of pairs of steps; transposed if `reverse`.
    chained: (weights, writers), BxLxHxK each.
    given: BxLxHxK, or None.
    reverse: whether to run from the last block to the first.

  Returns:
    (rows BxLxHxP, the state before each block BxNxHxKxP, the last BxHxKxP);
    before and last in the direction of the run.
  """
  B, L, H, K, P, N = plan.B, plan.L, plan.H, plan.K, plan.P, plan.N
  high = plan.state_columns
  tile = (None, None, K, high), 'b h 0 p'
  rows = (None, L, None, high), 'b 0 h p'
  of_keys = (None, L, None, K), 'b 0 h 0'
  factors = chained if given is None else (*chained, given)
  suffix = '_reverse' if reverse else ''
  kernel = functools.partial(_delta_states, reverse=reverse)
  rows_of_steps, before, last = gla_tiles.call(
    plan,
    kernel,
    {'p': P // high},
    [
      (state, *tile),
      (decay, (None, N, None, K), 'b 0 h 0'),
      (x, *rows),
      (own, (None, L, None, plan.block), 'b 0 h 0'),
      *((factor, *of_keys) for factor in factors),
    ],
    [
      ((B, L, H, P), plan.stored, *rows),
      ((B, N, H, K, P), plan.stored, (None, N, None, K, high), 'b 0 h 0 p'),
      ((B, H, K, P), jnp.float32, *tile),
    ],
    warps=tiles.WARPS,
    stages=plan.stages(len(factors)),
    suffix=suffix,
  )
  return rows_of_steps, before, last


def _delta_outputs(readers_ref, states_ref, *refs, plan, reverse):
  *pairs, y_ref = refs

  def load(ref):
    return tiles.split(ref[...], plan.parts)

  y = jnp.zeros(y_ref.shape, jnp.float32)
  for matrix_ref, rows_ref in zip(pairs[::2], pairs[1::2], strict=True):
    axes = 0 if reverse else 1, 0
    y += tiles.product(load(matrix_ref), load(rows_ref), axes)

  def add(n, y):
    keys = tiles.part(n, plan.wide)
    readers, tile = readers_ref[:, keys], states_ref[keys, :]
    factors = (tiles.split(x, plan.parts) for x in (readers, tile))
    return y + tiles.product(*factors)

  y = tiles.loop(plan.K // plan.wide, add, y)
  y_ref[...] = y.astype(y_ref.dtype)


def outputs(
  plan: tiles.Plan,
  readers: jax.Array,
  states: jax.Array,
  pairs: list[tuple[jax.Array, jax.Array]],
  reverse: bool = False,
) -> jax.Array:
  """Returns readers S + the sum of matrix x, BxLxHxP.

  Args:
    plan: the shapes.
    readers: BxLxHxK.
    states: S, BxNxHxKxP.
    pairs: (matrix BxLxHxC, x BxLxHxP) each.
    reverse: whether the matrices are transposed.
  """
  C, K, high = plan.block, plan.K, plan.high
  rows = (None, C, None, high), 'b n h p'
  inputs = [
    (readers, (None, C, None, K), 'b n h 0'),
    (states, (None, None, None, K, high), 'b n h 0 p'),
  ]
  for matrix, x in pairs:
    inputs += [(matrix, (None, C, None, C), 'b n h 0'), (x, *rows)]
  (y,) = gla_tiles.call(
    plan,
    functools.partial(_delta_outputs, reverse=reverse),
    {'p': plan.P // high, 'n': plan.N},
    inputs,
    [((plan.B, plan.L, plan.H, plan.P), plan.stored, *rows)],
    warps=tiles.WARPS,
  )
  return y


def _delta_pairs(inverse_ref, e_ref, dy_ref, v_ref, *refs, plan):
  if plan.general:
    u_ref, *refs = refs
    written = v_ref, u_ref
  else:
    u_ref, beta_ref, dv_ref, d_beta_ref, *refs = refs
    written, beta = (u_ref,), beta_ref[...]
  inverse = tiles.split(inverse_ref[...], plan.parts)

  def add(n, sums):
    columns = tiles.part(n, plan.high)

    def load(ref):
      return tiles.split(ref[:, columns], plan.parts)

    dy, rows = load(dy_ref), [load(ref) for ref in written]
    before = tiles.product(inverse, load(e_ref), (0, 0))
    *scores, d_beta = sums
    if not plan.general:
      dv_ref[:, columns] = (beta * before).astype(dv_ref.dtype)
      v = v_ref[:, columns].astype(jnp.float32)
      d_beta += jnp.sum(before * v, axis=1, keepdims=True)
    before = tiles.split(-before, plan.parts)
    scores = [
      x + tiles.product(factor, row, (1, 1))
      for x, (factor, row) in zip(
        scores, [(x, row) for x in (dy, before) for row in rows], strict=True
      )
    ]
    return *scores, d_beta

  i, j = tiles.step_pairs(plan)
  nothing = jnp.zeros((plan.block, plan.block), jnp.float32)
  *scores, d_beta = tiles.loop(
    plan.P // plan.high,
    add,
    (*[nothing] * (2 * plan.W), jnp.zeros((plan.block, 1), jnp.float32)),
  )
  for n, (ref, x) in enumerate(zip(refs, scores, strict=True)):
    seen = j <= i if n < plan.W else j < i
    ref[...] = jnp.where(seen, x, 0.0).astype(ref.dtype)
  if not plan.general:
    d_beta_ref[...] = d_beta


def pairs(
  plan: tiles.Plan,
  inverse: jax.Array,
  e: jax.Array,
  dy: jax.Array,
  v: jax.Array,
  u: jax.Array,
  beta: jax.Array | None,
) -> tuple[jax.Array, ...]:
  """Returns the gradients of all scores, BxLxHxC.

  Of the delta rule before them those of v, and of beta as far as it follows
  from v, BxLxHx1.
  """
  C = plan.block
  steps, matrix = (plan.B, plan.L, plan.H), ((None, C, None, C), 'b n h 0')
  rows = (None, C, None, plan.P), 'b n h 0'
  column = (None, C, None, 1), 'b n h 0'
  inputs = [(inverse, *matrix), *((x, *rows) for x in (e, dy, v, u))]
  results = [((*steps, C), plan.stored, *matrix)] * (2 * plan.W)
  if beta is not None:
    inputs.append((beta, *column))
    results = [
      ((*steps, plan.P), plan.stored, *rows),
      ((*steps, 1), jnp.float32, *column),
      *results,
    ]
  return gla_tiles.call(
    plan, _delta_pairs, {'n': plan.N}, inputs, results, warps=tiles.WARPS
  )
