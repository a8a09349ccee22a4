"""The elementwise linear recurrence.

    h_t = f_t * h_{t-1} + u_t        * is elementwise over channels

Shapes: f, u and h are BxLxS (batch, time, channels), the state h_0 is BxS. The
state and all sums are float32 whatever the inputs' dtype; h has u's. A factor
f of exactly 0 forgets all before it; with |f| <= 1 no form overflows where the
steps themselves don't. The gradients are another such recurrence, backwards:

    d_t = dh_t + f_{t+1} * d_{t+1}    du_t = d_t    df_t = d_t * h_{t-1}

so every form stores only f and h for the backward pass.

    scan         L sequential steps
    associative  log L rounds over all steps
    chunked      all chunks in parallel, step by step; then the states between
                 them: C + L / C sequential steps for chunks of C
    native       C++ on a CPU: one pass over time, vectors of channels

Source: Blelloch, "Prefix Sums and Their Applications", 1990; Martin and Cundy,
"Parallelizing Linear Recurrent Neural Nets over Sequence Length", 2018.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import checks
from rnn_jax.ops.linear_scan import native as linear_scan_native
from rnn_jax.system import target

IMPLS = ('auto', 'step', 'scan', 'associative', 'chunked', 'native')
CHUNK = 128


def step(
  state_BxS: jax.Array, f_BxS: jax.Array, u_BxS: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """One step: the definition of the recurrence. Returns (state, h_BxS)."""
  f, u = (x.astype(jnp.float32) for x in (f_BxS, u_BxS))
  state = f * state_BxS.astype(jnp.float32) + u
  return state, state.astype(u_BxS.dtype)


def recurrence(
  state_BxS: jax.Array,
  f_BxLxS: jax.Array,
  u_BxLxS: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time, any L >= 1.

  Args:
    state_BxS: h before the first step.
    f_BxLxS: the factors of h.
    u_BxLxS: the addends.
    starts_BxL: nonzero where a document begins: h is zeroed before that step.
    impl: one of IMPLS. A named one never falls back to another. 'native' needs
      a CPU and the library of rnn_jax/native. 'auto' is 'step' for one step; on
      a CPU 'native' where it can run, else 'scan'; elsewhere 'chunked'.
    chunk_length: steps of a chunk of 'chunked'; None: CHUNK.

  Returns:
    (state_BxS in float32, h_BxLxS in u's dtype).

  Raises:
    ValueError: shapes disagree, or an unknown option.
    NotImplementedError: 'step' with L > 1, or 'native' where it can't run.
  """
  shapes.check(state_BxS=state_BxS, f_BxLxS=f_BxLxS, u_BxLxS=u_BxLxS)
  checks.check_rows('u_BxLxS', u_BxLxS, starts_BxL)
  checks.check_form(impl, IMPLS, chunk_length)
  length = u_BxLxS.shape[1]
  impl = _choose(length) if impl == 'auto' else impl
  checks.check_one_step(impl, length)
  state, f, u = (x.astype(jnp.float32) for x in (state_BxS, f_BxLxS, u_BxLxS))
  if starts_BxL is not None:
    f = jnp.where(starts_BxL[..., None] != 0, 0.0, f)
  if impl == 'native':
    h = linear_scan_native.recurrence(state, f, u)
  else:
    h = _run(_FORMS[impl], chunk_length or CHUNK, state, f, u)
  return h[:, -1], h.astype(u_BxLxS.dtype)


def _choose(length):
  if length == 1:
    impl = 'step'
  elif target.platform() != 'cpu':
    impl = 'chunked'  # a GPU launches a kernel per sequential step
  else:
    impl = 'scan' if linear_scan_native.lacking() else 'native'
  checks.log_choice('linear_scan.recurrence', impl)
  return impl


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _run(form, chunk_length, state, f, u):
  """Returns h_BxLxS by a form that starts from a state of zeros."""
  u = u.at[:, 0].add(f[:, 0] * state)
  return form(f, u, chunk_length, reverse=False)


def _forward(form, chunk_length, state, f, u):
  h = _run(form, chunk_length, state, f, u)
  return h, (state, f, h)


def _backward(form, chunk_length, kept, dh):
  state, f, h = kept
  later = jnp.concatenate([f[:, 1:], jnp.ones_like(f[:, :1])], 1)
  d = form(later, dh, chunk_length, reverse=True)
  before = jnp.concatenate([state[:, None], h[:, :-1]], 1)
  return f[:, 0] * d[:, 0], d * before, d


_run.defvjp(_forward, _backward)


def _single(f, u, chunk_length, reverse):
  del f, chunk_length, reverse
  return u


def _scan(f, u, chunk_length, reverse):
  del chunk_length

  def turn(h, inputs):
    f, u = inputs
    h = f * h + u
    return h, h

  by_time = f.swapaxes(0, 1), u.swapaxes(0, 1)
  zeros = jnp.zeros_like(u[:, 0])
  _, h = jax.lax.scan(turn, zeros, by_time, reverse=reverse)
  return h.swapaxes(0, 1)


def _associative(f, u, chunk_length, reverse):
  del chunk_length

  def compose(first, second):
    (f_1, u_1), (f_2, u_2) = first, second
    return f_1 * f_2, f_2 * u_1 + u_2

  return jax.lax.associative_scan(compose, (f, u), reverse, axis=1)[1]


def _chunked(f, u, chunk_length, reverse):
  B, L, S = u.shape
  chunk = min(chunk_length, L)
  # Padding with f = 1 and u = 0 leaves the state unchanged.
  padding = [(0, 0), (0, -L % chunk), (0, 0)]
  f = jnp.pad(f, padding, constant_values=1.0)
  f, u = (x.reshape(B, -1, chunk, S) for x in (f, jnp.pad(u, padding)))

  def turn(carry, inputs):
    (product, h), (f, u) = carry, inputs
    carry = f * product, f * h + u
    return carry, carry

  # Each chunk from zeros, and the factor of the state that enters it.
  by_step = f.transpose(2, 0, 1, 3), u.transpose(2, 0, 1, 3)
  ones = jnp.ones((B, f.shape[1], S))
  begin = ones, jnp.zeros_like(ones)
  of_chunks, by_step = jax.lax.scan(turn, begin, by_step, reverse=reverse)
  product, h = (x.transpose(1, 2, 0, 3) for x in by_step)

  def next_chunk(entering, of_chunk):
    product, h = of_chunk
    return product * entering + h, entering

  of_chunks = jax.tree.map(lambda x: x.swapaxes(0, 1), of_chunks)
  zeros = jnp.zeros((B, S))
  _, entering = jax.lax.scan(next_chunk, zeros, of_chunks, reverse=reverse)
  h = h + product * entering.swapaxes(0, 1)[:, :, None]
  return h.reshape(B, -1, S)[:, :L]


_FORMS = {
  'step': _single,
  'scan': _scan,
  'associative': _associative,
  'chunked': _chunked,
}
