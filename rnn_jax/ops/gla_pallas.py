"""The gated linear recurrence on a GPU: Pallas kernels lowered through Triton.

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

Shapes as in `gla`: q, k BxLxHxK; v, y BxLxHxP; log a_t <= 0, -inf allowed,
BxLxHxK or BxLxHx1. Time is cut in N chunks of C steps and these in sub-blocks
of 16. Writing d(s, t] for the product of the decays after s up to t, and 0 and
C for the ends of a chunk, whose first state is S:

    scores_ij = sum_K q_i k_j d(j, i], j <= i        total = d(0, C]
    read_i = q_i d(0, i]       write_j = k_j d(j, C]
    y = read S + scores v      S' = diag(total) S + write^T v

One kernel, parallel over sub-blocks, makes read, write, total and scores; one
goes through the chunks in order and stores the state before each; one, parallel
over chunks, makes y. Backwards the same three kinds run: with D the gradient
of the state behind a chunk,

    D' = diag(total) D + read^T dy            dv = write D + scores^T dy
    dread = dy S^T     dwrite = v D^T         dscores = dy v^T (where j <= i)

and the last turns these into the gradients of q, k and log a.

No decay is divided by and no exponent is positive. Two steps that meet have a
border between them: the query is decayed from the border on, the key up to the
border, each by the exponential of a sum of logs taken over just these steps.
Borders are those between sub-blocks, and inside one sub-block those that halve
it, its halves, and so on. The gradient of a log-decay is the sum over the pairs
that meet across it, every term holding that decay as a factor; the cheaper
difference of sums of q dq and k dk would leave rounding where a gate is 0.
Source: Yang et al., "Gated Linear Attention Transformers with Hardware-
Efficient Training", 2024.
"""

import contextlib
import contextvars
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

SUB = 16  # the shortest side of a matmul on tensor cores
CHUNK = 64
BLOCK = 64  # of K or P, what one program holds of a state
MANY = 256  # programs that keep a large GPU busy
WIDEST = 256
SHORT = 16  # sequences up to here run step by step, the state in registers
OPERANDS = ('float32', 'tf32', 'bfloat16')
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32, and 0 times it is no NaN
DEFAULT = jax.lax.Precision.DEFAULT  # TF32 if float32; None asks the config
_HALVES = (8, 4, 2, 1)

_interpreted = contextvars.ContextVar('interpreted', default=False)


class Plan(NamedTuple):
  """What a kernel is specialized on; all static."""

  operands: str
  B: int
  L: int
  H: int
  K: int
  P: int
  chunk: int
  by_head: bool
  interpret: bool

  @property
  def N(self):
    return self.L // self.chunk

  @property
  def subs(self):
    return self.chunk // SUB

  @property
  def G(self):
    """The width of a decay."""
    return 1 if self.by_head else self.K

  @property
  def stored(self):
    """The format of what is multiplied, where it is kept in memory."""
    return jnp.bfloat16 if self.operands == 'bfloat16' else jnp.float32

  @property
  def warps(self):
    """Exact products leave the tensor cores and take twice the registers."""
    return 8 if self.operands == 'float32' else 4


@contextlib.contextmanager
def interpret():
  """Within, kernels are interpreted: they run on any device, slowly.

  What jax.jit has compiled within is found again outside, for equal shapes.
  """
  token = _interpreted.set(True)
  try:
    yield
  finally:
    _interpreted.reset(token)


def runs_here() -> bool:
  """Whether the kernels run on the default device, or are interpreted."""
  return _interpreted.get() or jax.default_backend() == 'gpu'


def operands_of(dtype) -> str:
  """The format of matmul operands for inputs of `dtype`.

  bfloat16 inputs are multiplied as they are. float32 inputs are multiplied
  exactly, unless `jax.default_matmul_precision` asks for less than that, by
  any of its names: then as TF32.
  """
  if jnp.dtype(dtype) == jnp.bfloat16:
    return 'bfloat16'
  asked = jax.config.jax_default_matmul_precision
  return 'float32' if asked in (None, 'highest', 'float32') else 'tf32'


def recurrence(
  state_BxHxKxP,
  q_BxLxHxK,
  k_BxLxHxK,
  v_BxLxHxP,
  loga_BxLxHxK,
  *,
  operands='float32',
):
  """Runs the recurrence over time by kernels.

  Args:
    state_BxHxKxP: the state before the first step.
    q_BxLxHxK: what is read.
    k_BxLxHxK: where it is written.
    v_BxLxHxP: what is written.
    loga_BxLxHxK: log-decays, <= 0; the last axis is K or 1.
    operands: one of OPERANDS, the format of what tensor cores multiply.
      Sums, states and decays are float32 under each. With 'bfloat16', q, k, v
      are read and y is written in it.

  Returns:
    (state_BxHxKxP in float32, y_BxLxHxP in float32 or bfloat16).

  Raises:
    ValueError: `operands` is none of its choices.
    NotImplementedError: this device has no such kernels, or a width is beyond
      WIDEST.
  """
  if operands not in OPERANDS:
    raise ValueError(f'operands={operands!r}: choose one of {OPERANDS}')
  if not runs_here():
    raise NotImplementedError(
      f"impl='pallas' needs a GPU, not {jax.default_backend()}: use 'chunked'"
      ' (to try the kernels anyway: `with gla_pallas.interpret():`)'
    )
  arrays = state_BxHxKxP, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK
  return run(*arrays, operands=operands, interpreted=_interpreted.get())


def run(state, q, k, v, loga, operands='float32', interpreted=False):
  """`recurrence` for whatever device the program is lowered for."""
  K, P, L = q.shape[-1], v.shape[-1], q.shape[1]
  for name, width in (('K', K), ('P', P)):
    if width > WIDEST:
      raise NotImplementedError(
        f"impl='pallas' holds states up to {WIDEST} wide, not {name}={width}: "
        "use more heads or impl='chunked'"
      )
  chunk = min(CHUNK, max(SUB, pl.next_power_of_2(L)))
  to_K, to_P = (max(SUB, pl.next_power_of_2(n)) - n for n in (K, P))
  by_head = loga.shape[-1] < K
  short = L <= SHORT
  steps = 0 if short else -L % chunk
  q, k, v, loga = (
    _pad(x, steps, columns)
    for x, columns in zip(
      (q, k, v, loga), (to_K, to_K, to_P, 0 if by_head else to_K), strict=True
    )
  )
  state = jnp.pad(state, [(0, 0), (0, 0), (0, to_K), (0, to_P)])
  plan = Plan(operands, *q.shape, v.shape[-1], chunk, by_head, interpreted)
  q, k, v = (x.astype(plan.stored) for x in (q, k, v))
  state, y = (_short if short else _long)(
    plan, state.astype(jnp.float32), q, k, v, loga.astype(jnp.float32)
  )
  return state[:, :, :K, :P], y[:, :L, :, :P]


def _pad(x, steps, columns=0):
  """Adds what writes nothing, forgets nothing and is not read."""
  return jnp.pad(x, [(0, 0), (0, steps), (0, 0), (0, columns)])


# The two ways forward, and one way back.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _long(plan, state, q, k, v, loga):
  return _long_forward(plan, state, q, k, v, loga)[0]


def _long_forward(plan, state, q, k, v, loga):
  read, write, total, scores = _prepare(plan, q, k, loga)
  states, state = _states(plan, state, write, v, total)
  y = _outputs(plan, read, states, scores, v)
  # Read, write and scores are made again on the way back: one light kernel
  # for three arrays of the size of q. The states would take the slow one.
  return (state, y), (q, k, v, loga, states)


def _backward(plan, residuals, cotangents):
  # Without a barrier, XLA takes what is made again for what was made before,
  # and keeps it from the forward pass on.
  q, k, v, loga, states = jax.lax.optimization_barrier(residuals)
  d_state, dy = cotangents
  read, write, total, scores = _prepare(plan, q, k, loga)
  d_states, d_state = _states(plan, d_state, read, dy, total, reverse=True)
  dv = _outputs(plan, write, d_states, scores, dy, reverse=True)
  d_scores = _score_gradients(plan, dy, v)
  meetings = _meetings(plan, dy, v, states, d_states)
  dq, dk, d_loga = _prepare_backward(plan, q, k, loga, d_scores, *meetings)
  return d_state, dq, dk, dv, d_loga


_long.defvjp(_long_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _short(plan, state, q, k, v, loga):
  return _steps(plan, state, q, k, v, loga)


def _short_forward(plan, state, q, k, v, loga):
  return _steps(plan, state, q, k, v, loga), (state, q, k, v, loga)


def _short_backward(plan, residuals, cotangents):
  state, *inputs = residuals
  d_state, dy = cotangents
  more = plan.chunk - plan.L
  *inputs, dy = (_pad(x, more) for x in (*inputs, dy))
  # One chunk, so that its first state is the one given.
  kept = (*inputs, state[:, :, None])
  padded = plan._replace(L=plan.chunk)
  d_state, *gradients = _backward(padded, kept, (d_state, dy))
  return d_state, *(x[:, : plan.L] for x in gradients)


_short.defvjp(_short_forward, _short_backward)


# What kernels have in common.


def _call(plan, kernel, grid, inputs, outputs, warps, stages=1):
  """Runs `kernel` at each place of a grid, for each head of each sequence.

  Args:
    plan: the shapes.
    kernel: a function of one reference for each input and each output.
    grid: the size of each axis by its letter: n chunks, s sub-blocks in one,
      i blocks of K, p blocks of P.
    inputs: (array, block, where) each. `where` says by a letter an axis which
      block is read: those of the grid, b for the sequence, h for the head, m
      for the sub-block counted over all chunks, 0 for the only one.
    outputs: (shape, dtype, block, where) each.
    warps: of 32 threads, that share one place.
    stages: loads that run ahead in a loop.

  Returns:
    The outputs.
  """

  def spec(block, where):
    def index(*place):
      *place, row = place
      at = dict(zip(grid, place, strict=True))
      at['b'], at['h'] = jax.lax.div(row, plan.H), jax.lax.rem(row, plan.H)
      if 's' in at:
        at['m'] = at['n'] * plan.subs + at['s']
      return tuple(at.get(letter, 0) for letter in where.split())

    return pl.BlockSpec(block, index)

  return pl.pallas_call(
    functools.partial(kernel, plan=plan),
    grid=(*grid.values(), plan.B * plan.H),
    in_specs=[spec(*rest) for _, *rest in inputs],
    out_specs=[spec(*rest) for _, _, *rest in outputs],
    out_shape=[jax.ShapeDtypeStruct(*of) for *of, _, _ in outputs],
    interpret=plan.interpret,
    compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=stages),
    name=getattr(kernel, 'func', kernel).__name__.strip('_'),
  )(*(array for array, *_ in inputs))


def _dot(plan, x, y, axes=(1, 0)):
  """The matmul of two tiles over the given axes, summed in float32."""
  exact = plan.operands == 'float32'
  return jax.lax.dot_general(
    x.astype(plan.stored),
    y.astype(plan.stored),
    (((axes[0],), (axes[1],)), ((), ())),
    precision=jax.lax.Precision.HIGHEST if exact else DEFAULT,
    preferred_element_type=jnp.float32,
  )


def _sums(mask, x):
  """mask @ x in float32 with a 16x16 mask; x is 16xG, G wide or 1."""
  if x.shape[1] == 1:
    x = jnp.broadcast_to(x.reshape(1, SUB), mask.shape)
    return jnp.sum(jnp.where(mask, x, 0.0), axis=1, keepdims=True)
  mask, sums = mask.astype(jnp.bfloat16), jnp.zeros(x.shape, jnp.float32)
  for part in reversed(_in_16_bits(x)):
    sums += jnp.dot(
      mask, part, precision=DEFAULT, preferred_element_type=jnp.float32
    )
  return sums


def _in_16_bits(x):
  """Three bfloat16 arrays that add up to x: 3 x 8 bits are float32's 24.

  They let tensor cores add float32 numbers. Bits are cut off, since a compiler
  may take rounding to bfloat16 and back for nothing at all.
  """
  parts = []
  for _ in range(2):
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & -(2**16)
    part = jax.lax.bitcast_convert_type(bits, jnp.float32)
    parts.append(part.astype(jnp.bfloat16))
    x = x - part
  return *parts, x.astype(jnp.bfloat16)


def _whole(x):
  return jnp.sum(x, axis=0, keepdims=True)


def _step_pairs():
  """Two 16x16 arrays, the number of the row and of the column."""
  shape = SUB, SUB
  return tuple(jax.lax.broadcasted_iota(jnp.int32, shape, n) for n in (0, 1))


def _from_start(loga):
  """Row i: the sum of all up to i."""
  i, t = _step_pairs()
  return _sums(t <= i, loga)


def _to_end(loga):
  """Row j: the sum of all after j."""
  j, t = _step_pairs()
  return _sums(t > j, loga)


def _since(x):
  """Row t: the sum of all from t on; the transpose of `_from_start`."""
  t, i = _step_pairs()
  return _sums(i >= t, x)


def _before(x):
  """Row t: the sum of all before t; the transpose of `_to_end`."""
  t, j = _step_pairs()
  return _sums(j < t, x)


# A sub-block is cut in pieces of 2 x half steps with a border in each middle.


def _late(i, half):
  """Whether step i is behind the border of its piece."""
  return (i & half) != 0


def _passed(i, t, half):
  """Whether t is between the border and i; i itself is if it is late."""
  beside = (i & ~(half - 1)) == (t & ~(half - 1))
  return beside & jnp.where(_late(i, half), t <= i, t > i)


def _about_borders(q, k, loga, half):
  """Queries behind a border and keys before it, decayed from and up to there.

  Returns:
    (q 16xK, k 16xK, decay 16xG, late 16x1, one_piece 16x16): 0 in the rows of
    q that are not late and those of k that are.
  """
  i, j = _step_pairs()
  decay = jnp.exp(_sums(_passed(i, j, half), loga))
  late = _late(jax.lax.broadcasted_iota(jnp.int32, (SUB, 1), 0), half)
  one_piece = (i & ~(2 * half - 1)) == (j & ~(2 * half - 1))
  q, k = jnp.where(late, q * decay, 0.0), jnp.where(late, 0.0, k * decay)
  return q, k, decay, late, one_piece


def _rows(ref, n):
  """Sub-block n of a chunk, in float32."""
  return ref[pl.ds(n * SUB, SUB), :].astype(jnp.float32)


def _decays(ref, n):
  return jnp.maximum(_rows(ref, n), FORGOTTEN)


# Scores of a sub-block with itself.


def _scores_by_key(plan, q, k, loga):
  i, j = _step_pairs()
  own = jnp.sum(q * k, axis=1, keepdims=True)
  scores = jnp.where(i == j, own, 0.0)
  for half in _HALVES:
    q_late, k_early, *_, one_piece = _about_borders(q, k, loga, half)
    met = _dot(plan, q_late, k_early, (1, 1))
    scores += jnp.where(one_piece, met, 0.0)
  return scores


def _scores_by_key_backward(plan, q, k, loga, d_scores):
  i, j = _step_pairs()
  own = jnp.where(i == j, d_scores, 0.0)
  own = jnp.sum(own, axis=1, keepdims=True)
  dq, dk, d_loga = own * k, own * q, jnp.zeros_like(loga)
  for half in _HALVES:
    about = _about_borders(q, k, loga, half)
    q_late, k_early, decay, late, one_piece = about
    met = jnp.where(one_piece, d_scores, 0.0)
    dq_late = jnp.where(late, decay * _dot(plan, met, k_early), 0.0)
    dk_early = decay * _dot(plan, met, q_late, (0, 0))
    dk_early = jnp.where(late, 0.0, dk_early)
    dq, dk = dq + dq_late, dk + dk_early
    passed = _passed(j, i, half)  # transposed: from each step to what it meets
    d_loga += _sums(passed, q * dq_late + k * dk_early)
  return dq, dk, d_loga


def _between(loga):
  """16x16: the decay from step j (column) to step i (row), 0 if j > i."""
  i, j = _step_pairs()
  spans = _sums(j <= i, jnp.where(i > j, loga, 0.0))  # a column for each j
  return jnp.where(i >= j, jnp.exp(spans), 0.0)


def _scores_by_head(plan, q, k, loga):
  return _dot(plan, q, k, (1, 1)) * _between(loga)


def _scores_by_head_backward(plan, q, k, loga, d_scores):
  i, j = _step_pairs()
  between = _between(loga)
  crossed = d_scores * between * _dot(plan, q, k, (1, 1))
  crossed = _sums(j >= i, jnp.where(i > j, crossed, 0.0))
  d_loga = jnp.sum(jnp.where(j < i, crossed, 0.0), axis=1, keepdims=True)
  met = d_scores * between
  return _dot(plan, met, k), _dot(plan, met, q, (0, 0)), d_loga


# Kernels.


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
  q, k = _rows(q_ref, here), _rows(k_ref, here)
  loga = _decays(loga_ref, here)
  since_start = _from_start(loga)
  q_here = q * jnp.exp(since_start)

  def meet_earlier(n, gap):
    n = here - 1 - n
    logs = _decays(loga_ref, n)
    keys = _rows(k_ref, n) * jnp.exp(_to_end(logs) + gap)
    scores = _dot(plan, q_here, keys, (1, 1))
    scores_ref[:, pl.ds(n * SUB, SUB)] = scores.astype(scores_ref.dtype)
    return gap + _whole(logs)

  def skip_later(n, gap):
    nothing = jnp.zeros((SUB, SUB), scores_ref.dtype)
    scores_ref[:, pl.ds(n * SUB, SUB)] = nothing
    return gap + _whole(_decays(loga_ref, n))

  nothing = jnp.zeros_like(_whole(loga))
  earlier = jax.lax.fori_loop(0, here, meet_earlier, nothing)
  later = jax.lax.fori_loop(here + 1, plan.subs, skip_later, nothing)
  scores_of = _scores_by_head if plan.by_head else _scores_by_key
  scores = scores_of(plan, q, k, loga)
  scores_ref[:, pl.ds(here * SUB, SUB)] = scores.astype(scores_ref.dtype)
  read_ref[...] = (q * jnp.exp(since_start + earlier)).astype(read_ref.dtype)
  write = k * jnp.exp(_to_end(loga) + later)
  write_ref[...] = write.astype(write_ref.dtype)
  total_ref[...] = _whole(loga)


def _prepare(plan, q, k, loga):
  B, L, H, K, C, G = plan.B, plan.L, plan.H, plan.K, plan.chunk, plan.G
  keys = (None, C, None, K), 'b n h 0'
  sub_block = (B, L, H, K), plan.stored, (None, SUB, None, K), 'b m h 0'
  return _call(
    plan,
    _prepare_kernel,
    {'s': plan.subs, 'n': plan.N},
    [(q, *keys), (k, *keys), (loga, (None, C, None, G), 'b n h 0')],
    [
      sub_block,
      sub_block,
      ((B, H, L // SUB, 1, G), jnp.float32, (None,) * 3 + (1, G), 'b h m 0 0'),
      ((B, H, L, C), plan.stored, (None, None, SUB, C), 'b h m 0'),
    ],
    warps=plan.warps if K <= 64 else 8,
  )


def _states_kernel(
  state_ref, x_ref, v_ref, total_ref, states_ref, last_ref, *, plan, reverse
):
  def advance(n, state):
    n = plan.N - 1 - n if reverse else n
    states_ref[n, :, :] = state.astype(states_ref.dtype)
    steps = pl.ds(n * plan.chunk, plan.chunk)
    total = jnp.sum(total_ref[pl.ds(n * plan.subs, plan.subs), :], axis=0)
    written = _dot(plan, x_ref[steps, :], v_ref[steps, :], (0, 0))
    return jnp.exp(total)[:, None] * state + written

  last_ref[...] = jax.lax.fori_loop(0, plan.N, advance, state_ref[...])


def _states(plan, state, x, v, total, reverse=False):
  """The state at the near end of each chunk and the one behind all."""
  B, L, H, K, P, N = plan.B, plan.L, plan.H, plan.K, plan.P, plan.N
  wide, high = _blocks(plan)
  logs, of_keys = (1, '0') if plan.by_head else (wide, 'i')
  tile = (None, None, wide, high), 'b h i p'
  tiles = (None, None, N, wide, high), 'b h 0 i p'
  return _call(
    plan,
    functools.partial(_states_kernel, reverse=reverse),
    {'i': K // wide, 'p': P // high},
    [
      (state, *tile),
      (x, (None, L, None, wide), 'b 0 h i'),
      (v, (None, L, None, high), 'b 0 h p'),
      (total, (None, None, L // SUB, None, logs), f'b h 0 0 {of_keys}'),
    ],
    [
      # Read by matmuls, so kept in their format; the sum itself is not.
      ((B, H, N, K, P), plan.stored, *tiles),
      ((B, H, K, P), jnp.float32, *tile),
    ],
    warps=4,
    stages=3,
  )


def _blocks(plan):
  """How much of K and of P one program takes of a state."""
  wide, high = min(plan.K, BLOCK), min(plan.P, BLOCK)
  programs = plan.B * plan.H * (plan.K // wide) * (plan.P // high)
  # Few sequences leave most of a GPU idle: cut their states smaller.
  return (wide, high) if programs >= MANY else (min(wide, 32), min(high, 32))


def _outputs_kernel(
  x_ref, states_ref, scores_ref, v_ref, y_ref, *, plan, reverse
):
  scores = scores_ref[...]
  y = _dot(plan, scores, v_ref[...], (0, 0) if reverse else (1, 0))
  for start in range(0, plan.K, BLOCK):
    keys = pl.ds(start, min(plan.K, BLOCK))
    y += _dot(plan, x_ref[:, keys], states_ref[keys, :])
  y_ref[...] = y.astype(y_ref.dtype)


def _outputs(plan, x, states, scores, v, reverse=False):
  """x state + scores v; with `reverse`, the transposed scores."""
  K, C, high = plan.K, plan.chunk, min(plan.P, BLOCK)
  steps = (None, C, None, high), 'b n h p'
  return _call(
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
  for start in range(0, plan.P, BLOCK):
    columns = pl.ds(start, min(plan.P, BLOCK))
    d_scores += _dot(plan, dy_ref[:, columns], v_ref[:, columns], (1, 1))
  i, j = (jax.lax.broadcasted_iota(jnp.int32, shape, n) for n in (0, 1))
  d_scores = jnp.where(j <= i, d_scores, 0.0)
  d_scores_ref[...] = d_scores.astype(d_scores_ref.dtype)


def _score_gradients(plan, dy, v):
  C = plan.chunk
  steps = (None, C, None, plan.P), 'b n h 0'
  pairs = (None, None, C, C), 'b h n 0'
  return _call(
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
  for start in range(0, plan.P, BLOCK):
    columns = pl.ds(start, min(plan.P, BLOCK))
    state, d_state = states_ref[:, columns], d_states_ref[:, columns]
    d_read += _dot(plan, dy_ref[:, columns], state, (1, 1))
    d_write += _dot(plan, v_ref[:, columns], d_state, (1, 1))
    product = state.astype(jnp.float32) * d_state.astype(jnp.float32)
    d_total += jnp.sum(product, axis=1)[None, :]
  d_read_ref[...], d_write_ref[...] = d_read, d_write
  d_total_ref[...] = d_total


def _meetings(plan, dy, v, states, d_states):
  """The gradients of read, of write and of total."""
  B, L, H, K, P, C = plan.B, plan.L, plan.H, plan.K, plan.P, plan.chunk
  wide = min(K, BLOCK)
  steps = (None, C, None, P), 'b n h 0'
  state = (None, None, None, wide, P), 'b h n i 0'
  keys = (B, L, H, K), jnp.float32, (None, C, None, wide), 'b n h i'
  total = (None, None, None, 1, wide), 'b h n 0 i'
  return _call(
    plan,
    _meetings_kernel,
    {'n': plan.N, 'i': K // wide},
    [(dy, *steps), (v, *steps), (states, *state), (d_states, *state)],
    [keys, keys, ((B, H, plan.N, 1, K), jnp.float32, *total)],
    warps=plan.warps,
    stages=2,
  )


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
  q, k = _rows(q_ref, here), _rows(k_ref, here)
  loga = _decays(loga_ref, here)
  nothing, no_keys = jnp.zeros_like(_whole(loga)), jnp.zeros_like(_whole(q))

  def met(i, j):
    return d_scores_ref[pl.ds(i * SUB, SUB), pl.ds(j * SUB, SUB)]

  def later_queries(n, gap):
    logs = _decays(loga_ref, n)
    queries = _rows(q_ref, n) * jnp.exp(_from_start(logs) + gap)
    return queries, gap + _whole(logs)

  def meet_earlier(n, carry):
    gap, dq, through, across = carry
    n = here - 1 - n
    logs = _decays(loga_ref, n)
    keys = _rows(k_ref, n) * jnp.exp(_to_end(logs) + gap)

    def meet_across(i, carry):
      gap, across = carry
      queries, gap = later_queries(i, gap)
      return gap, across + _whole(queries * _dot(plan, met(i, n), keys))

    dq += _dot(plan, met(here, n), keys)
    through += _whole(keys * _rows(d_write_ref, n))
    _, across = jax.lax.fori_loop(
      here + 1, plan.subs, meet_across, (nothing, across)
    )
    return gap + _whole(logs), dq, through, across

  def meet_later(n, carry):
    gap, dk, through = carry
    queries, next_gap = later_queries(n, gap)
    dk += _dot(plan, met(n, here), queries, (0, 0))
    through += _whole(queries * _rows(d_read_ref, n))
    return next_gap, dk, through

  earlier, dq, from_keys, across = jax.lax.fori_loop(
    0, here, meet_earlier, (nothing, jnp.zeros_like(q), no_keys, no_keys)
  )
  later, dk, to_queries = jax.lax.fori_loop(
    here + 1, plan.subs, meet_later, (nothing, jnp.zeros_like(k), no_keys)
  )
  # What has met outside this sub-block, and what has met across all of it.
  dq += _rows(d_read_ref, here) * jnp.exp(earlier)
  dk += _rows(d_write_ref, here) * jnp.exp(later)
  dq *= jnp.exp(_from_start(loga))
  dk *= jnp.exp(_to_end(loga))
  total = _whole(loga)
  through = across * jnp.exp(total) + d_total_ref[...] * jnp.exp(
    earlier + total + later
  )
  through += from_keys * jnp.exp(total + later)
  through += to_queries * jnp.exp(earlier + total)
  q_dq, k_dk = q * dq, k * dk
  if plan.by_head:
    through, q_dq, k_dk = (
      jnp.sum(x, axis=1, keepdims=True) for x in (through, q_dq, k_dk)
    )
  d_loga = _since(q_dq) + _before(k_dk) + through
  backward = _scores_by_head_backward
  backward = backward if plan.by_head else _scores_by_key_backward
  d_scores = met(here, here).astype(jnp.float32)
  dq_own, dk_own, d_loga_own = backward(plan, q, k, loga, d_scores)
  dq_ref[...] = (dq + dq_own).astype(dq_ref.dtype)
  dk_ref[...] = (dk + dk_own).astype(dk_ref.dtype)
  d_loga_ref[...] = d_loga + d_loga_own


def _prepare_backward(plan, q, k, loga, d_scores, d_read, d_write, d_total):
  """The gradients of q, k and loga."""
  B, L, H, K, C = plan.B, plan.L, plan.H, plan.K, plan.chunk
  wide = min(K, BLOCK)
  keys = (None, C, None, wide), 'b n h i'
  logs = ((None, C, None, 1), 'b n h 0') if plan.by_head else keys
  # With one decay a head, its gradient in parts from each block of keys.
  parts, width = (K // wide, 1) if plan.by_head else (K, wide)
  sub_block = (B, L, H, K), plan.stored, (None, SUB, None, wide), 'b m h i'
  dq, dk, d_loga = _call(
    plan,
    _prepare_backward_kernel,
    {'s': plan.subs, 'i': K // wide, 'n': plan.N},
    [
      (q, *keys),
      (k, *keys),
      (loga, *logs),
      (d_scores, (None, None, C, C), 'b h n 0'),
      (d_read, *keys),
      (d_write, *keys),
      (d_total, (None, None, None, 1, wide), 'b h n 0 i'),
    ],
    [
      sub_block,
      sub_block,
      ((B, L, H, parts), jnp.float32, (None, SUB, None, width), 'b m h i'),
    ],
    warps=plan.warps,
  )
  return dq, dk, jnp.sum(d_loga, -1, keepdims=True) if plan.by_head else d_loga


def _steps_kernel(
  state_ref, q_ref, k_ref, v_ref, loga_ref, last_ref, y_ref, *, plan
):
  def step(t, state):
    q, k, v, loga = (
      ref[t, :].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref, loga_ref)
    )
    decay = jnp.exp(jnp.maximum(loga, FORGOTTEN))
    state = decay[:, None] * state + k[:, None] * v[None, :]
    y_ref[t, :] = jnp.sum(q[:, None] * state, axis=0).astype(y_ref.dtype)
    return state

  last_ref[...] = jax.lax.fori_loop(0, plan.L, step, state_ref[...])


def _steps(plan, state, q, k, v, loga):
  """Step by step; of the states only the last leaves the registers."""
  B, L, H, K, P = plan.B, plan.L, plan.H, plan.K, plan.P
  high = min(P, 32)
  tile = (None, None, K, high), 'b h 0 p'
  keys = (None, L, None, K), 'b 0 h 0'
  values = (None, L, None, high), 'b 0 h p'
  return _call(
    plan,
    _steps_kernel,
    {'p': P // high},
    [
      (state, *tile),
      (q, *keys),
      (k, *keys),
      (v, *values),
      (loga, (None, L, None, plan.G), 'b 0 h 0'),
    ],
    [
      ((B, H, K, P), jnp.float32, *tile),
      ((B, L, H, P), plan.stored, *values),
    ],
    warps=4,
  )
