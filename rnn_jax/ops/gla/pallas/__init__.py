"""The gated linear recurrence on a GPU: Pallas kernels lowered through Triton.

Hopper GPUs run those of `gla.mosaic` instead, which `form` decides.

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

Shapes as in `gla`: q, k, log a BxLxHxK; v, y BxLxHxP; log a_t <= 0, -inf
allowed. With one decay a head, `gla.ssd` runs instead. Time is split into N
chunks of C steps and these into sub-blocks of 16. With d(s, t] the product of
the decays after s up to t, 0 and C the ends of a chunk, and S its first state:

    scores_ij = sum_K q_i k_j d(j, i], j <= i        total = d(0, C]
    read_i = q_i d(0, i]       write_j = k_j d(j, C]
    y = read S + scores v      S' = diag(total) S + write^T v

One kernel, parallel over sub-blocks, computes read, write, total and scores;
one visits the chunks in order and stores the state before each; one, parallel
over chunks, computes y. The backward pass has the same three kinds: with D the
gradient of the state after a chunk,

    D' = diag(total) D + read^T dy            dv = write D + scores^T dy
    dread = dy S^T     dwrite = v D^T         dscores = dy v^T (where j <= i)

and the last turns these into the gradients of q, k and log a.

Nothing is divided by a decay, and no exponent is positive. Every pair of steps
has a border between them: the query is decayed from the border on, the key up
to the border, each by the exponential of a sum of logs over exactly these
steps. Borders lie between sub-blocks, and inside a sub-block in its middle, in
the middle of its halves, and so on. The gradient of a log-decay is the sum over
the pairs on both sides of it, every term with that decay as a factor; the
cheaper difference of sums of q dq and k dk has rounding errors where a gate
is 0.
Source: Yang et al., "Gated Linear Attention Transformers with Hardware-
Efficient Training", 2024.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops import precision
from rnn_jax.ops.gla import mosaic as gla_mosaic
from rnn_jax.ops.gla.pallas import scores as kernel_scores
from rnn_jax.ops.gla.pallas import states as kernel_states
from rnn_jax.ops.gla.pallas import tiles
from rnn_jax.system import target

CHUNK = 64
WIDEST = 256  # the largest K and P
SHORT = 16  # sequences up to here run step by step, the state in registers

_interpreted = contextvars.ContextVar('interpreted', default='')


@contextlib.contextmanager
def interpret(form: str = 'triton') -> Iterator[None]:
  """Interprets kernels within: they run on any device, slowly.

  A function that jax.jit has compiled within stays interpreted outside, for
  equal shapes.

  Args:
    form: of the kernels, 'triton' or 'mosaic'.
  """
  token = _interpreted.set(form)
  try:
    yield
  finally:
    _interpreted.reset(token)


def runs_here() -> bool:
  """Returns whether kernels run on the default device, or interpreted."""
  return interpreted() or target.platform() == 'gpu'


def interpreted() -> bool:
  """Returns whether kernels are interpreted."""
  return bool(_interpreted.get())


def check_device() -> None:
  """Checks that kernels run here.

  Raises:
    NotImplementedError: the device isn't a GPU.
  """
  if not runs_here():
    raise NotImplementedError(
      f"impl='pallas' needs a GPU, not {target.platform()}: use 'chunked'"
      ' (to try the kernels anyway: `with pallas.interpret():`)'
    )


def check_widths(K: int, P: int) -> None:
  """Checks that Triton's kernels can hold a state.

  Raises:
    NotImplementedError: K or P is above WIDEST.
  """
  for name, width in (('K', K), ('P', P)):
    if width > WIDEST:
      raise NotImplementedError(
        f"impl='pallas' holds states up to {WIDEST} wide, not {name}={width}: "
        "use more heads or impl='chunked'"
      )


def form() -> str:
  """Returns which kernels run: 'mosaic' on Hopper GPUs, else 'triton'."""
  if name := _interpreted.get():
    return name
  mosaic = target.capability()[:1] == (gla_mosaic.CAPABILITY,)
  return 'mosaic' if mosaic else 'triton'


def is_faster(
  q_BxLxHxK: jax.Array, v_BxLxHxP: jax.Array, operands: str
) -> bool:
  """Returns whether kernels are faster than 'chunked', as was measured.

  That is so for Mosaic's in bfloat16 on an H100. They pad K, P and L to 64;
  below half of that nothing was measured. Under a jax.shard_map that checks
  which axes its arrays vary over, they can't run.
  """
  widths = q_BxLxHxK.shape[-1], v_BxLxHxP.shape[-1]
  return (
    form() == 'mosaic'
    and operands == 'bfloat16'
    and q_BxLxHxK.shape[1] >= CHUNK
    and min(widths) >= CHUNK // 2
    and not any(jax.typeof(x).mat.varying for x in (q_BxLxHxK, v_BxLxHxP))
  )


def recurrence(
  state_BxHxKxP: jax.Array,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  *,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time by kernels, of `form`.

  Args:
    state_BxHxKxP: the state before the first step.
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys.
    v_BxLxHxP: the values.
    loga_BxLxHxK: log-decays, <= 0.
    operands: one of precision.RECURRENT, the format of the matmuls' operands.
      Sums, states and decays are always float32. With 'bfloat16', q, k, v are
      read and y is written in bfloat16.

  Returns:
    (state_BxHxKxP in float32, y_BxLxHxP in float32 or bfloat16).

  Raises:
    ValueError: `operands` isn't one of precision.RECURRENT.
    NotImplementedError: the device isn't a GPU, or a width is above WIDEST on
      a GPU that isn't a Hopper.
  """
  precision.check_recurrent(operands, 'pallas')
  check_device()
  arrays = state_BxHxKxP, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK
  forms = {'mosaic': gla_mosaic.run, 'triton': run}
  return forms[form()](*arrays, operands=operands, interpreted=interpreted())


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  operands: str = 'float32',
  interpreted: bool = False,
) -> tuple[jax.Array, jax.Array]:
  """Runs Triton's kernels on the device that the program is lowered for.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxHxK.
    k: BxLxHxK.
    v: BxLxHxP.
    loga: BxLxHxK.
    operands: one of precision.RECURRENT.
    interpreted: whether kernels are interpreted.

  Returns:
    As `recurrence`.

  Raises:
    NotImplementedError: K or P is above WIDEST.
  """
  K, P, L = q.shape[-1], v.shape[-1], q.shape[1]
  check_widths(K, P)
  chunk = min(CHUNK, max(tiles.SUB, pl.next_power_of_2(L)))
  to_K, to_P = (max(tiles.SUB, pl.next_power_of_2(n)) - n for n in (K, P))
  short = L <= SHORT
  steps = 0 if short else -L % chunk
  q, k, v, loga = (
    _pad(x, steps, columns)
    for x, columns in ((q, to_K), (k, to_K), (v, to_P), (loga, to_K))
  )
  state = jnp.pad(state, [(0, 0), (0, 0), (0, to_K), (0, to_P)])
  B, L_padded, H, K_padded = q.shape
  plan = tiles.Plan(
    operands=operands,
    B=B,
    L=L_padded,
    H=H,
    K=K_padded,
    P=v.shape[-1],
    chunk=chunk,
    interpret=interpreted,
  )
  q, k, v = (x.astype(plan.stored) for x in (q, k, v))
  state, y = (_short if short else _long)(
    plan, state.astype(jnp.float32), q, k, v, loga.astype(jnp.float32)
  )
  return state[:, :, :K, :P], y[:, :L, :, :P]


def _pad(x, steps, columns=0):
  """Appends zeros, which write nothing, forget nothing and aren't read."""
  return jnp.pad(x, [(0, 0), (0, steps), (0, 0), (0, columns)])


# Two forward passes, which share one backward pass.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _long(plan, state, q, k, v, loga):
  return _long_forward(plan, state, q, k, v, loga)[0]


def _long_forward(plan, state, q, k, v, loga):
  read, write, total, scores = kernel_scores.prepare(plan, q, k, loga)
  states, state = kernel_states.states(plan, state, write, v, total)
  y = kernel_states.outputs(plan, read, states, scores, v)
  # The backward pass recomputes read, write and scores: one cheap kernel for
  # three arrays of q's size. Recomputing the states would be slow.
  return (state, y), (q, k, v, loga, states)


def _backward(plan, residuals, cotangents):
  # Without a barrier, XLA merges the recomputation with the forward pass and
  # stores the results after all.
  q, k, v, loga, states = jax.lax.optimization_barrier(residuals)
  d_state, dy = cotangents
  read, write, total, scores = kernel_scores.prepare(plan, q, k, loga)
  d_states, d_state = kernel_states.states(
    plan, d_state, read, dy, total, reverse=True
  )
  dv = kernel_states.outputs(plan, write, d_states, scores, dy, reverse=True)
  d_scores = kernel_states.score_gradients(plan, dy, v)
  meetings = kernel_states.meetings(plan, dy, v, states, d_states)
  dq, dk, d_loga = kernel_scores.prepare_backward(
    plan, q, k, loga, d_scores, *meetings
  )
  return d_state, dq, dk, dv, d_loga


_long.defvjp(_long_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _short(plan, state, q, k, v, loga):
  return kernel_states.steps(plan, state, q, k, v, loga)


def _short_forward(plan, state, q, k, v, loga):
  return kernel_states.steps(plan, state, q, k, v, loga), (state, q, k, v, loga)


def _short_backward(plan, residuals, cotangents):
  state, *inputs = residuals
  d_state, dy = cotangents
  padding = plan.chunk - plan.L
  *inputs, dy = (_pad(x, padding) for x in (*inputs, dy))
  # One chunk, so its first state is the initial one.
  kept = (*inputs, state[:, :, None])
  padded = plan._replace(L=plan.chunk)
  d_state, *gradients = _backward(padded, kept, (d_state, dy))
  return d_state, *(x[:, : plan.L] for x in gradients)


_short.defvjp(_short_forward, _short_backward)
