"""The kernels of the recurrence; the package's docstring has their equations.

A border of a chunk is a mask of its steps: mask_it = 1 if the log-decay of step
t lies between step i and the border. exp(mask @ log a) is the decay of each
step from or to its border, and mask^T @ x sums for each log-decay what it
decays.

A kernel's `s` is the shared memory and the barriers of one program, by name.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from rnn_jax.ops.gla.mosaic import tiles

TILE = tiles.TILE
LEVELS = TILE.bit_length() - 1  # borders that halve 64, 32, ..., 2 steps


def _level(plan, n):
  """Returns masks of the border in the middle of pieces of 64, 32, ... steps.

  Returns:
    late: the steps after it, in rows.
    border: see the module's docstring.
    across: the pairs of steps that it is the first to separate.
  """
  # Shifted alike, so that a compiler doesn't keep what n leaves unchanged in
  # registers.
  i, j = (x + n * TILE for x in tiles.pairs(plan))
  half = jax.lax.shift_right_logical(jnp.int32(TILE // 2), n)
  late, apart = (i & half) != 0, i ^ j
  border = (apart < half) & (late ^ (j > i))
  return late, border, (apart >= half) & (apart < 2 * half)


def _decay(plan, border_s, logs, border):
  tiles.write([border_s], jnp.where(border, 1.0, 0.0))
  return jnp.exp(tiles.dot(plan, [border_s], logs))


def _logs(loga_s, logs_s):
  """Writes the operand of log-decays; returns it and their sum over time."""
  loga = jnp.maximum(loga_s[...], tiles.FORGOTTEN)
  logs = _parts(logs_s, tiles.EXACT)
  tiles.write(logs, loga)
  return logs, loga


def _either(late, q_s, k_s):
  return jnp.where(late, *(x[...].astype(jnp.float32) for x in (q_s, k_s)))


def _parts(ref, count):
  return [ref.at[n] for n in range(count)]


def _to_chunk(plan, ref, b, n, h, columns):
  """Returns the tiles of an operand in memory, (parts B) x L x H x K."""
  return [
    ref.at[part * plan.B + b, tiles.at(n), h, tiles.at(columns)]
    for part in range(plan.parts)
  ]


def _to_pairs(plan, ref, row, n, *block):
  """Returns the tiles of an operand in memory, (B H N parts) x ... ."""
  first = (row * plan.N + n) * plan.parts
  index = tuple(tiles.at(x) for x in block)
  return [ref.at[(first + part, *index)] for part in range(plan.parts)]


def _prepare(plan, inputs, outputs, s):
  q_ref, k_ref, loga_ref = inputs
  read_ref, write_ref, total_ref, scores_ref = outputs
  n, keys = jax.lax.axis_index('n'), jax.lax.axis_index('i')
  row, b, h = tiles.sequence(plan)
  here = b, tiles.at(n), h, tiles.at(keys)
  i, j = tiles.pairs(plan)
  x = _parts(s.x, plan.parts)
  tiles.load(
    s.barrier,
    (q_ref.at[here], s.q),
    (k_ref.at[here], s.k),
    (loga_ref.at[here], s.loga),
  )
  logs, loga = _logs(s.loga, s.logs)
  s.total[...] = jnp.sum(loga, 0)

  def level(number, scores):
    late, border, across = _level(plan, number)
    decay = _decay(plan, s.border, logs, border)
    tiles.write(x, _either(late, s.q, s.k) * decay)
    met = tiles.dot(plan, x, tiles.transposed(x))
    return scores + jnp.where(across & (i > j), met, 0.0)

  scores = jax.lax.fori_loop(0, LEVELS, level, tiles.zeros(plan))
  q, k = (ref[...].astype(jnp.float32) for ref in (s.q, s.k))
  own = tiles.repeated(jnp.sum(q * k, 1), 0)
  scores_s = s.loga
  scores_s[...] = scores + jnp.where(i == j, own, 0.0)
  for values, border, ref in (
    (s.q, j <= i, read_ref),
    (s.k, j > i, write_ref),
  ):
    decay = _decay(plan, s.border, logs, border)
    tiles.write(x, values[...].astype(jnp.float32) * decay)
    tiles.store(*zip(x, _to_chunk(plan, ref, b, n, h, keys), strict=True))
  tiles.store(
    (s.total, total_ref.at[row, n, tiles.at(keys)]),
    (scores_s, scores_ref.at[row * plan.N + n, keys]),
  )


def prepare(
  plan: tiles.Plan, q: jax.Array, k: jax.Array, loga: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Returns (read, write, total, scores); see the package's docstring.

  read and write are operands (parts B)xLxHxK; total (B H)xNxK, the sums of
  log-decays; scores an operand (B H N parts)x64x64.
  """
  rows = plan.B * plan.H
  operand = (plan.parts * plan.B, plan.L, plan.H, plan.K), jnp.bfloat16
  width = plan.K // TILE
  read, write, total, scores = tiles.call(
    plan,
    _prepare,
    {'n': plan.N, 'i': width},
    [q, k, loga],
    [
      operand,
      operand,
      ((rows, plan.N, plan.K), jnp.float32),
      ((rows * plan.N, width, TILE, TILE), jnp.float32),
    ],
    {
      'q': tiles.tile(plan.stored),
      'k': tiles.tile(plan.stored),
      'loga': tiles.tile(jnp.float32),
      'logs': tiles.operand(tiles.EXACT),
      'border': tiles.operand(),
      'x': tiles.operand(plan.parts),
      'total': plgpu.SMEM((TILE,), jnp.float32),
      'barrier': plgpu.Barrier(num_arrivals=3),
    },
  )
  parts = tiles.split(jnp.sum(scores, 1), plan.parts)
  scores = jnp.stack(parts, 1).reshape(-1, TILE, TILE)
  return read, write, total, scores


def _states(plan, inputs, outputs, s, *, reverse):
  state_ref, x_ref, v_ref, total_ref = inputs
  kept_ref, last_ref = outputs
  row, b, h = tiles.sequence(plan)
  keys, values = jax.lax.axis_index('i'), jax.lax.axis_index('p')
  here = row, tiles.at(keys), tiles.at(values)
  kept = _parts(s.kept, plan.parts)

  def chunk(n):
    return plan.N - 1 - n if reverse else n

  def fetch(n):
    slot, n = jax.lax.rem(n, 2), chunk(n)
    x, v = (_parts(ref.at[slot], plan.parts) for ref in (s.x, s.v))
    tiles.fetch(
      s.ready.at[slot],
      *zip(_to_chunk(plan, x_ref, b, n, h, keys), x, strict=True),
      *zip(_to_chunk(plan, v_ref, b, n, h, values), v, strict=True),
      (total_ref.at[row, n, tiles.at(keys)], s.total.at[slot]),
    )

  def advance(n, state):
    slot = jax.lax.rem(n, 2)
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    tiles.write(kept, state)
    plgpu.commit_smem()
    to = _to_pairs(plan, kept_ref, row, chunk(n), keys, values)
    for source, target in zip(kept, to, strict=True):
      plgpu.copy_smem_to_gmem(source, target)
    plgpu.barrier_wait(s.ready.at[slot])

    @pl.when(n + 1 < plan.N)
    def _():
      fetch(n + 1)

    x, v = (_parts(ref.at[slot], plan.parts) for ref in (s.x, s.v))
    written = tiles.dot(plan, tiles.transposed(x), v)
    decay = jnp.exp(tiles.vector(plan, s.total.at[slot], 0))
    return tiles.repeated(decay, 0) * state + written

  fetch(jnp.int32(0))
  tiles.load(s.first, (state_ref.at[here], s.state))
  s.state[...] = jax.lax.fori_loop(0, plan.N, advance, s.state[...])
  tiles.store((s.state, last_ref.at[here]))


def states(
  plan: tiles.Plan,
  state: jax.Array,
  x: jax.Array,
  v: jax.Array,
  total: jax.Array,
  reverse: bool = False,
) -> list[jax.Array]:
  """Runs the state over all chunks.

  Args:
    plan: the shapes.
    state: (B H)xKxP, before the first chunk.
    x: (parts B)xLxHxK, the left factor of each update.
    v: (parts B)xLxHxP, the right factor.
    total: (B H)xNxK, sums of log-decays.
    reverse: whether to run from the last chunk to the first.

  Returns:
    (the state before each chunk, (B H N parts)xKxP, the last one (B H)xKxP);
    before and last in the direction of the run.
  """
  parts, rows = plan.parts, plan.B * plan.H
  kernel = functools.partial(_states, reverse=reverse)
  return tiles.call(
    plan,
    kernel,
    {'i': plan.K // TILE, 'p': plan.P // TILE},
    [state, x, v, total],
    [
      ((rows * plan.N * parts, plan.K, plan.P), jnp.bfloat16),
      ((rows, plan.K, plan.P), jnp.float32),
    ],
    {
      'state': tiles.tile(jnp.float32),
      'x': tiles.operand(2, parts),
      'v': tiles.operand(2, parts),
      'total': plgpu.SMEM((2, TILE), jnp.float32),
      'kept': tiles.operand(parts),
      'first': plgpu.Barrier(),
      'ready': plgpu.Barrier(num_arrivals=2 * parts + 1, num_barriers=2),
    },
  )


def _outputs(plan, inputs, outputs, s, *, reverse):
  x_ref, states_ref, scores_ref, v_ref = inputs
  n, values = jax.lax.axis_index('n'), jax.lax.axis_index('p')
  row, b, h = tiles.sequence(plan)
  x, state, scores, v = (
    _parts(ref, plan.parts) for ref in (s.x, s.states, s.scores, s.v)
  )

  def fetch(keys):
    kept = _to_pairs(plan, states_ref, row, n, keys, values)
    tiles.fetch(
      s.of_keys,
      *zip(_to_chunk(plan, x_ref, b, n, h, keys), x, strict=True),
      *zip(kept, state, strict=True),
    )

  def add(keys, y):
    plgpu.barrier_wait(s.of_keys)
    y += tiles.dot(plan, x, state)

    @pl.when((keys + 1) * TILE < plan.K)
    def _():
      fetch(keys + 1)

    return y

  fetch(jnp.int32(0))
  tiles.load(
    s.of_chunk,
    *zip(_to_pairs(plan, scores_ref, row, n), scores, strict=True),
    *zip(_to_chunk(plan, v_ref, b, n, h, values), v, strict=True),
  )
  scores = tiles.transposed(scores) if reverse else scores
  y = tiles.dot(plan, scores, v)
  y = jax.lax.fori_loop(0, plan.K // TILE, add, y)
  s.y[...] = y.astype(s.y.dtype)
  tiles.store((s.y, outputs[0].at[b, tiles.at(n), h, tiles.at(values)]))


def outputs(
  plan: tiles.Plan,
  x: jax.Array,
  states: jax.Array,
  scores: jax.Array,
  v: jax.Array,
  reverse: bool = False,
) -> jax.Array:
  """Returns x state + scores v, BxLxHxP; transposed scores if `reverse`."""
  operand = tiles.operand(plan.parts)
  arrivals = plgpu.Barrier(num_arrivals=2 * plan.parts)
  return tiles.call(
    plan,
    functools.partial(_outputs, reverse=reverse),
    {'n': plan.N, 'p': plan.P // TILE},
    [x, states, scores, v],
    [((plan.B, plan.L, plan.H, plan.P), plan.stored)],
    {
      'x': operand,
      'states': operand,
      'scores': operand,
      'v': operand,
      'y': tiles.tile(plan.stored),
      'of_chunk': arrivals,
      'of_keys': arrivals,
    },
  )[0]


def _meet(plan, inputs, outputs, s):
  dy_ref, v_ref, states_ref, d_states_ref = inputs
  d_read_ref, d_write_ref, d_total_ref, d_scores_ref = outputs
  n, keys = jax.lax.axis_index('n'), jax.lax.axis_index('i')
  row, b, h = tiles.sequence(plan)
  operands = dy, v, state, d_state = [
    _parts(ref, plan.parts) for ref in (s.dy, s.v, s.states, s.d_states)
  ]

  # In a loop of its own, and sums in shared memory, since registers are scarce.
  @pl.when(keys == 0)
  def _():
    def add(values, d_scores):
      tiles.load(
        s.of_scores,
        *zip(_to_chunk(plan, dy_ref, b, n, h, values), dy, strict=True),
        *zip(_to_chunk(plan, v_ref, b, n, h, values), v, strict=True),
      )
      return d_scores + tiles.dot(plan, dy, tiles.transposed(v))

    s.d_read[...] = jax.lax.fori_loop(0, plan.P // TILE, add, tiles.zeros(plan))
    tiles.store((s.d_read, d_scores_ref.at[row * plan.N + n]))

  def add(values, met):
    sources = (
      _to_chunk(plan, dy_ref, b, n, h, values),
      _to_chunk(plan, v_ref, b, n, h, values),
      _to_pairs(plan, states_ref, row, n, keys, values),
      _to_pairs(plan, d_states_ref, row, n, keys, values),
    )
    for source, to in zip(sources, operands, strict=True):
      tiles.fetch(s.of_values, *zip(source, to, strict=True))
    plgpu.barrier_wait(s.of_values)
    s.d_read[...] += tiles.dot(plan, dy, tiles.transposed(state))
    s.d_write[...] += tiles.dot(plan, v, tiles.transposed(d_state))
    return met + tiles.dot(plan, state, tiles.transposed(d_state))

  s.d_read[...] = s.d_write[...] = tiles.zeros(plan)
  met = jax.lax.fori_loop(0, plan.P // TILE, add, tiles.zeros(plan))
  i, j = tiles.pairs(plan)
  s.d_total[...] = jnp.sum(jnp.where(i == j, met, 0.0), 1)
  here = b, tiles.at(n), h, tiles.at(keys)
  tiles.store(
    (s.d_read, d_read_ref.at[here]),
    (s.d_write, d_write_ref.at[here]),
    (s.d_total, d_total_ref.at[row, n, tiles.at(keys)]),
  )


def meet(
  plan: tiles.Plan,
  dy: jax.Array,
  v: jax.Array,
  states: jax.Array,
  d_states: jax.Array,
) -> list[jax.Array]:
  """Returns the gradients of read, write, total and scores.

  Those of read and write are BxLxHxK; of e^total (B H)xNxK; of scores
  (B H N)x64x64, those of later steps than the query's included.
  """
  keys = (plan.B, plan.L, plan.H, plan.K), jnp.float32
  operand, rows = tiles.operand(plan.parts), plan.B * plan.H
  return tiles.call(
    plan,
    _meet,
    {'n': plan.N, 'i': plan.K // TILE},
    [dy, v, states, d_states],
    [
      keys,
      keys,
      ((rows, plan.N, plan.K), jnp.float32),
      ((rows * plan.N, TILE, TILE), jnp.float32),
    ],
    {
      'dy': operand,
      'v': operand,
      'states': operand,
      'd_states': operand,
      'd_read': tiles.tile(jnp.float32),
      'd_write': tiles.tile(jnp.float32),
      'd_total': plgpu.SMEM((TILE,), jnp.float32),
      'of_scores': plgpu.Barrier(num_arrivals=2 * plan.parts),
      'of_values': plgpu.Barrier(num_arrivals=4 * plan.parts),
    },
  )


def _gradients(plan, inputs, outputs, s):
  q_ref, k_ref, loga_ref, d_read_ref, d_write_ref, d_total_ref = inputs[:6]
  pairs_ref, own_ref = inputs[6:]
  n, keys = jax.lax.axis_index('n'), jax.lax.axis_index('i')
  row, b, h = tiles.sequence(plan)
  here = b, tiles.at(n), h, tiles.at(keys)
  i, j = tiles.pairs(plan)
  x, met, pairs = (_parts(ref, plan.parts) for ref in (s.x, s.met, s.pairs))
  tiles.fetch(
    s.of_keys,
    (q_ref.at[here], s.q),
    (k_ref.at[here], s.k),
    (loga_ref.at[here], s.loga),
    (d_total_ref.at[row, n, tiles.at(keys)], s.total),
    (own_ref.at[row * plan.N + n], s.own),
    *zip(_to_pairs(plan, pairs_ref, row, n), pairs, strict=True),
  )
  tiles.fetch(s.of_sum, (d_write_ref.at[here], s.sum))
  plgpu.barrier_wait(s.of_keys)
  logs, loga = _logs(s.loga, s.logs)
  # From here on sums of gradients, since registers are scarce.
  d_loga_s, dq_s, total = s.loga, s.sum, jnp.exp(jnp.sum(loga, 0))
  through = tiles.vector(plan, s.total, 1) * total
  d_loga_s[...] = tiles.repeated(through, 1)
  own = tiles.repeated(tiles.vector(plan, s.own, 0), 0)

  def add_to_decays(values):
    tiles.write(x, values)
    d_loga_s[...] += tiles.dot(plan, tiles.transposed([s.border]), x)

  plgpu.barrier_wait(s.of_sum)
  dk = s.sum[...] * _decay(plan, s.border, logs, j > i)
  add_to_decays(s.k[...].astype(jnp.float32) * dk)
  dk += own * s.q[...].astype(jnp.float32)
  tiles.load(s.of_sum, (d_read_ref.at[here], s.sum))
  dq = s.sum[...] * _decay(plan, s.border, logs, j <= i)
  add_to_decays(s.q[...].astype(jnp.float32) * dq)
  dq_s[...] = dq + own * s.k[...].astype(jnp.float32)

  def level(number, dk):
    late, border, across = _level(plan, number)
    decay = _decay(plan, s.border, logs, border)
    tiles.write(x, _either(late, s.q, s.k) * decay)
    for source, to in zip(pairs, met, strict=True):
      to[...] = jnp.where(across, source[...], jnp.bfloat16(0))
    decayed = tiles.dot(plan, met, x)
    gradient = decayed * decay
    dq_s[...] += jnp.where(late, gradient, 0.0)
    dk += jnp.where(late, 0.0, gradient)
    add_to_decays(_either(late, s.q, s.k) * gradient)
    return dk

  dk = jax.lax.fori_loop(0, LEVELS, level, dk)
  s.q[...] = dq_s[...].astype(s.q.dtype)
  s.k[...] = dk.astype(s.k.dtype)
  dq_ref, dk_ref, d_loga_ref = outputs
  tiles.store(
    (s.q, dq_ref.at[here]),
    (s.k, dk_ref.at[here]),
    (d_loga_s, d_loga_ref.at[here]),
  )


def gradients(
  plan: tiles.Plan,
  q: jax.Array,
  k: jax.Array,
  loga: jax.Array,
  d_read: jax.Array,
  d_write: jax.Array,
  d_total: jax.Array,
  d_scores: jax.Array,
) -> list[jax.Array]:
  """Returns the gradients of q, k and loga, in their shapes."""
  # From each step to its pairs on both sides, and to itself.
  lower = jnp.tril(d_scores, -1)
  parts = tiles.split(lower + lower.swapaxes(1, 2), plan.parts)
  pairs = jnp.stack(parts, 1).reshape(-1, TILE, TILE)
  own = jnp.diagonal(d_scores, axis1=1, axis2=2)
  shape, operand = (plan.B, plan.L, plan.H, plan.K), tiles.operand(plan.parts)
  vector = plgpu.SMEM((TILE,), jnp.float32)
  return tiles.call(
    plan,
    _gradients,
    {'n': plan.N, 'i': plan.K // TILE},
    [q, k, loga, d_read, d_write, d_total, pairs, own],
    [(shape, plan.stored), (shape, plan.stored), (shape, jnp.float32)],
    {
      'q': tiles.tile(plan.stored),
      'k': tiles.tile(plan.stored),
      'loga': tiles.tile(jnp.float32),
      'total': vector,
      'sum': tiles.tile(jnp.float32),
      'x': operand,
      'met': operand,
      'pairs': operand,
      'logs': tiles.operand(tiles.EXACT),
      'border': tiles.operand(),
      'own': vector,
      'of_keys': plgpu.Barrier(num_arrivals=5 + plan.parts),
      'of_sum': plgpu.Barrier(),
    },
  )
