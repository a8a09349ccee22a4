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
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from rnn_jax.ops.gla.mosaic import tiles

TILE = tiles.TILE
LEVELS = TILE.bit_length() - 1  # borders that halve 64, 32, ..., 2 steps
WRITE, READ, HALVES = 0, 1, 2  # borders: the ends of a chunk, the first level
BORDERS = HALVES + LEVELS


def _borders():
  """Returns the masks of all borders, in the order in which they are used."""
  i, j = np.indices((TILE, TILE))
  halves = [TILE // 2 >> number for number in range(LEVELS)]
  of_pieces = [
    ((i ^ j) < half) & (((i & half) != 0) ^ (j > i)) for half in halves
  ]
  return jnp.asarray(np.stack([j > i, j <= i, *of_pieces]), jnp.bfloat16)


def _fetch_border(s, borders_ref, number):
  slot = jax.lax.rem(number, 2)
  pair = borders_ref.at[number], s.border.at[slot]
  tiles.fetch(s.of_border.at[slot], pair)


def _border(s, number):
  """Returns the mask of a border, once it is there."""
  slot = jax.lax.rem(number, 2)
  plgpu.barrier_wait(s.of_border.at[slot])
  return s.border.at[slot]


def _next_border(s, borders_ref, number, more=False):
  """Fetches the border after the next one into the place of `number`.

  `more`: after the last one follows the first.
  """
  after = number + 2

  @pl.when((after < BORDERS) | more)
  def _():
    _fetch_border(s, borders_ref, jax.lax.rem(after, BORDERS))


def _level(plan, number):
  """Returns the level of a border: how far pieces and steps are apart.

  Returns:
    late: the steps after the border of their piece, in rows.
    i, j: a pair of steps is on the two sides of one border if i equals j ^ 1.
  """
  bits = jnp.int32(LEVELS - 1) - (number - HALVES)
  rows, columns = tiles.indices(plan)
  i, j = (jax.lax.shift_right_logical(x, bits) for x in (rows, columns))
  late = tiles.repeated(i & 1, 0)
  return late != 0, tiles.repeated(i, 0), tiles.repeated(j, 1)


def _decay(plan, border, logs):
  """Returns the decays of all steps from or to a border."""
  return tiles.power(plan, tiles.dot(plan, [border], logs))


def _logs(plan, loga_s, logs_s):
  """Writes the operand of log-decays; returns it and their sum over time."""
  loga = jnp.maximum(loga_s[...], tiles.FORGOTTEN)
  logs = _parts(logs_s, plan.logs)
  tiles.write(logs, loga * tiles.unit(plan))
  return logs, loga


def _either(late, q_s, k_s):
  return jnp.where(late, q_s[...], k_s[...]).astype(jnp.float32)


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
  q_ref, k_ref, loga_ref, borders_ref = inputs
  read_ref, write_ref, total_ref, scores_ref = outputs
  n, widths = jax.lax.axis_index('n'), plan.K // TILE
  row, b, h = tiles.sequence(plan)
  x = _parts(s.x, plan.parts)

  def add(keys, scores):
    here = b, tiles.at(n), h, tiles.at(keys)
    tiles.load(
      s.barrier,
      (q_ref.at[here], s.q),
      (k_ref.at[here], s.k),
      (loga_ref.at[here], s.loga),
    )
    logs, loga = _logs(plan, s.loga, s.logs)
    s.total[...] = jnp.sum(loga, 0)

    def decay_to(number):
      decay = _decay(plan, _border(s, number), logs)
      _next_border(s, borders_ref, number, more=keys + 1 < widths)
      return decay

    for number, of, to in ((WRITE, s.k, write_ref), (READ, s.q, read_ref)):
      decay = decay_to(jnp.int32(number))
      tiles.write(x, of[...].astype(jnp.float32) * decay)
      tiles.store(*zip(x, _to_chunk(plan, to, b, n, h, keys), strict=True))
    tiles.store((s.total, total_ref.at[row, n, tiles.at(keys)]))

    def level(number, scores):
      late, i, j = _level(plan, number)
      tiles.write(x, _either(late, s.q, s.k) * decay_to(number))
      met = tiles.dot(plan, x, tiles.transposed(x))
      return scores + jnp.where(late & (i == (j ^ 1)), met, 0.0)

    q, k = (ref[...].astype(jnp.float32) for ref in (s.q, s.k))
    own = tiles.repeated(jnp.sum(q * k, 1), 0)
    scores += jnp.where(tiles.diagonal(plan), own, 0.0)
    return jax.lax.fori_loop(HALVES, BORDERS, level, scores)

  _fetch_border(s, borders_ref, jnp.int32(WRITE))
  _fetch_border(s, borders_ref, jnp.int32(READ))
  scores = add(jnp.int32(0), tiles.zeros(plan))
  if widths > 1:
    scores = jax.lax.fori_loop(1, widths, add, scores)
  tiles.write(x, scores)
  tiles.store(*zip(x, _to_pairs(plan, scores_ref, row, n), strict=True))


def prepare(
  plan: tiles.Plan, q: jax.Array, k: jax.Array, loga: jax.Array
) -> list[jax.Array]:
  """Returns [read, write, total, scores]; see the package's docstring.

  read and write are operands (parts B)xLxHxK; total (B H)xNxK, the sums of
  log-decays; scores an operand (B H N parts)x64x64.
  """
  rows = plan.B * plan.H
  operand = (plan.parts * plan.B, plan.L, plan.H, plan.K), jnp.bfloat16
  return tiles.call(
    plan,
    _prepare,
    {'n': plan.N},
    [q, k, loga, _borders()],
    [
      operand,
      operand,
      ((rows, plan.N, plan.K), jnp.float32),
      ((rows * plan.N * plan.parts, TILE, TILE), jnp.bfloat16),
    ],
    {
      'q': tiles.tile(plan.stored),
      'k': tiles.tile(plan.stored),
      'loga': tiles.tile(jnp.float32),
      'logs': tiles.operand(plan.logs),
      'border': tiles.operand(2),
      'x': tiles.operand(plan.parts),
      'total': plgpu.SMEM((TILE,), jnp.float32),
      'barrier': plgpu.Barrier(num_arrivals=3),
      'of_border': plgpu.Barrier(num_barriers=2),
    },
  )


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
  d_read_ref, d_write_ref, d_total_ref, pairs_ref, own_ref = outputs
  n, keys = jax.lax.axis_index('n'), jax.lax.axis_index('i')
  row, b, h = tiles.sequence(plan)
  operands = dy, v, state, d_state = [
    _parts(ref, plan.parts) for ref in (s.dy, s.v, s.states, s.d_states)
  ]

  i, j = tiles.pairs(plan)

  # In a loop of its own, and sums in shared memory, since registers are scarce.
  @pl.when(keys == 0)
  def _():
    def add(values, sums):
      tiles.load(
        s.of_scores,
        *zip(_to_chunk(plan, dy_ref, b, n, h, values), dy, strict=True),
        *zip(_to_chunk(plan, v_ref, b, n, h, values), v, strict=True),
      )
      lower, upper = sums
      lower += tiles.dot(plan, dy, tiles.transposed(v))
      return lower, upper + tiles.dot(plan, v, tiles.transposed(dy))

    sums = tiles.zeros(plan), tiles.zeros(plan)
    sums = jax.lax.fori_loop(0, plan.P // TILE, add, sums)
    lower, upper = sums
    s.d_total[...] = jnp.sum(jnp.where(i == j, lower, 0.0), 1)
    tiles.write(dy, jnp.where(i > j, lower, jnp.where(i < j, upper, 0.0)))
    tiles.store(
      (s.d_total, own_ref.at[row * plan.N + n]),
      *zip(dy, _to_pairs(plan, pairs_ref, row, n), strict=True),
    )

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
  """Returns the gradients of read, write, e^total and scores.

  Those of read and write are BxLxHxK; of e^total (B H)xNxK; of the scores of
  each step with the steps before and after it an operand (B H N parts)x64x64,
  and with itself (B H N)x64.
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
      ((rows * plan.N * plan.parts, TILE, TILE), jnp.bfloat16),
      ((rows * plan.N, TILE), jnp.float32),
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
  pairs_ref, own_ref, borders_ref = inputs[6:]
  n, keys = jax.lax.axis_index('n'), jax.lax.axis_index('i')
  row, b, h = tiles.sequence(plan)
  here = b, tiles.at(n), h, tiles.at(keys)
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
  _fetch_border(s, borders_ref, jnp.int32(WRITE))
  _fetch_border(s, borders_ref, jnp.int32(READ))
  tiles.fetch(s.of_sum, (d_write_ref.at[here], s.sum))
  plgpu.barrier_wait(s.of_keys)
  logs, loga = _logs(plan, s.loga, s.logs)
  # From here on sums of gradients, since registers are scarce.
  d_loga_s, total = s.loga, jnp.exp(jnp.sum(loga, 0))
  through = tiles.vector(plan, s.total, 1) * total
  d_loga_s[...] = tiles.repeated(through, 1)
  own = tiles.repeated(tiles.vector(plan, s.own, 0), 0)

  def add_to_decays(number, border, values):
    tiles.write(x, values)
    d_loga_s[...] += tiles.dot(plan, tiles.transposed([border]), x)
    _next_border(s, borders_ref, number)

  def at_end(number, of_s, to_s):
    border = _border(s, number)
    gradient = s.sum[...] * _decay(plan, border, logs)
    add_to_decays(number, border, of_s[...].astype(jnp.float32) * gradient)
    return gradient + own * to_s[...].astype(jnp.float32)

  plgpu.barrier_wait(s.of_sum)
  dk = at_end(jnp.int32(WRITE), s.k, s.q)
  tiles.load(s.of_sum, (d_read_ref.at[here], s.sum))
  dq = at_end(jnp.int32(READ), s.q, s.k)

  def level(number, sums):
    dq, dk = sums
    late, i, j = _level(plan, number)
    border = _border(s, number)
    decay = _decay(plan, border, logs)
    near = _either(late, s.q, s.k) * decay
    tiles.write(x, near)
    for source, to in zip(pairs, met, strict=True):
      to[...] = jnp.where(i == (j ^ 1), source[...], jnp.bfloat16(0))
    decayed = tiles.dot(plan, met, x)
    gradient = decayed * decay
    is_late = jnp.where(late, 1.0, 0.0)
    dq += is_late * gradient
    dk += (1 - is_late) * gradient
    if plan.fast:
      add_to_decays(number, border, near * decayed)
    else:  # registers are scarce
      add_to_decays(number, border, _either(late, s.q, s.k) * gradient)
    return dq, dk

  dq, dk = jax.lax.fori_loop(HALVES, BORDERS, level, (dq, dk))
  s.q[...] = dq.astype(s.q.dtype)
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
  pairs: jax.Array,
  own: jax.Array,
) -> list[jax.Array]:
  """Returns the gradients of q, k and loga, in their shapes; see `meet`."""
  shape, operand = (plan.B, plan.L, plan.H, plan.K), tiles.operand(plan.parts)
  vector = plgpu.SMEM((TILE,), jnp.float32)
  return tiles.call(
    plan,
    _gradients,
    {'n': plan.N, 'i': plan.K // TILE},
    [q, k, loga, d_read, d_write, d_total, pairs, own, _borders()],
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
      'logs': tiles.operand(plan.logs),
      'border': tiles.operand(2),
      'own': vector,
      'of_keys': plgpu.Barrier(num_arrivals=5 + plan.parts),
      'of_sum': plgpu.Barrier(),
      'of_border': plgpu.Barrier(num_barriers=2),
    },
  )
