"""The gated linear recurrence with a matrix state (gated linear attention).

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

Shapes: q, k BxLxHxK, or BxLxGxK of G groups of heads that share them; v, y
BxLxHxP; the state BxHxKxP. `loga` = log a_t <= 0 is BxLxHxK, or BxLxHx1 for one
decay a head; -inf (a gate of 0) is allowed. The states, the decays and all sums
are float32 whatever the inputs' dtype and the matmuls' operands; y has v's
dtype. A state that is given in bfloat16 is returned in it, rounded after the
last step. Read-before-update, y_t = S_{t-1}^T q_t, is `read='before'`.

The chunked form is in chunked.py, C++ for a CPU in native.py, and kernels for a
GPU in pallas/, or in ssd/ with one decay a head.
Source: Yang et al., "Gated Linear Attention Transformers with Hardware-
Efficient Training", 2024.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import checks
from rnn_jax.ops import fixed_order
from rnn_jax.ops import precision
from rnn_jax.ops.gla import chunked as gla_chunked
from rnn_jax.ops.gla import native as gla_native
from rnn_jax.system import target

IMPLS = (
  'auto',
  'step',
  'scan',
  'chunked',
  'associative',
  'native',
  'pallas',
)
READS = ('after', 'before')
BLOCK = gla_chunked.BLOCK  # longer chunks are multiples of it
CHUNK = 128  # the least mean of benchmarks.suites.chunks on a CPU

_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def step(
  state_BxHxKxP: jax.Array,
  q_BxHxK: jax.Array,
  k_BxHxK: jax.Array,
  v_BxHxP: jax.Array,
  loga_BxHxK: jax.Array,
  read: str = 'after',
) -> tuple[jax.Array, jax.Array]:
  """Runs one step, the definition of the recurrence.

  Args:
    state_BxHxKxP: the state before the step.
    q_BxHxK: the query.
    k_BxHxK: the key.
    v_BxHxP: the value.
    loga_BxHxK: log-decay, <= 0; the last axis is K or 1.
    read: 'after' or 'before' the update.

  Returns:
    (state_BxHxKxP, y_BxHxP), float32.
  """
  return _step(
    state_BxHxKxP,
    (q_BxHxK, k_BxHxK, v_BxHxP, loga_BxHxK),
    read,
  )


def recurrence(
  state_BxHxKxP: jax.Array,
  q_BxLxGxK: jax.Array,
  k_BxLxGxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  rate_BxLxH: jax.Array | None = None,
  skip_H: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
  read: str = 'after',
  operands: str | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time, any L >= 1.

  Args:
    state_BxHxKxP: the state before the first step.
    q_BxLxGxK: the queries of each head, or of G groups of H / G heads.
    k_BxLxGxK: the keys, likewise.
    v_BxLxHxP: the values.
    loga_BxLxHxK: log-decays, <= 0; the last axis is K or 1.
    starts_BxL: nonzero where a document begins: the state is zeroed before
      that step.
    rate_BxLxH: a factor of what each step writes, r k v^T; None: 1.
    skip_H: what y has of v besides, S^T q + d v; None: 0.
    impl: one of IMPLS. A named one never falls back to another. 'native' needs
      a CPU and the library of rnn_jax/native, 'pallas' a GPU; with one decay a
      head it runs the kernels of gla.ssd. 'auto' is 'step' for one step outside
      fixed_order.evaluate, else 'native' where it can run and `operands` are
      float32, the kernels for a decay of each key where they were measured to
      be faster (gla.pallas.is_faster) and no chunk_length is given, else
      'chunked'.
    chunk_length: steps between the states that 'chunked' and 'native' store for
      the backward pass. None: CHUNK and gla_native.SEGMENT. For 'chunked' a
      multiple of BLOCK is fastest.
    read: 'after' or 'before' the update.
    operands: one of precision.RECURRENT, the format of the operands of matmuls,
      which 'chunked' and 'pallas' have; the other forms multiply in float32.
      None: 'bfloat16' for inputs in it under 'pallas', else 'float32'.

  Returns:
    (state_BxHxKxP in float32, or in bfloat16 if it was given so; y_BxLxHxP in
    v's dtype).

  Raises:
    ValueError: shapes disagree, or an unknown option.
    NotImplementedError: `impl` can't compute these inputs.
  """
  sizes = shapes.check(
    state_BxHxKxP=state_BxHxKxP,
    q_BxLxGxK=q_BxLxGxK,
    k_BxLxGxK=k_BxLxGxK,
    v_BxLxHxP=v_BxLxHxP,
  )
  checks.check_groups('q_BxLxGxK', sizes['G'], sizes['H'])
  each = tuple(sizes[axis] for axis in 'BLHK')
  checks.check_shapes(
    ('rate_BxLxH', rate_BxLxH, each[:-1]), ('skip_H', skip_H, each[2:3])
  )
  checks.check_decays(loga_BxLxHxK, each)
  checks.check_rows('q_BxLxGxK', q_BxLxGxK, starts_BxL)
  checks.check_form(impl, IMPLS, chunk_length)
  if read not in READS:
    raise ValueError(f'read={read!r}: choose one of {READS}')
  inputs = q_BxLxGxK, k_BxLxGxK, v_BxLxHxP
  if operands is None:
    half = impl == 'pallas' and jnp.result_type(*inputs) == jnp.bfloat16
    operands = 'bfloat16' if half else 'float32'
  precision.check_recurrent(operands, impl)
  loga = loga_BxLxHxK.astype(jnp.float32)
  if impl == 'auto':
    impl = _choose(q_BxLxGxK, v_BxLxHxP, operands, chunk_length)
    if impl == 'pallas':  # what was measured has a decay for each key
      loga = jnp.broadcast_to(loga, each)
  checks.check_one_step(impl, sizes['L'])
  by_head = impl == 'pallas' and loga.shape[-1] == 1 and read == 'after'
  if not by_head:
    inputs = of_heads(*inputs, rate_BxLxH)
  if starts_BxL is not None:
    # A decay of exactly 0 forgets all earlier steps, gradients included.
    loga = jnp.where(starts_BxL[:, :, None, None] != 0, -jnp.inf, loga)
  dtype = checks.state_dtype(state_BxHxKxP)
  if by_head:
    from rnn_jax.ops.gla import ssd as gla_ssd

    state, y = gla_ssd.run(
      state_BxHxKxP, *inputs, loga, rate_BxLxH, skip_H, operands
    )
    return state.astype(dtype), y.astype(v_BxLxHxP.dtype)
  if impl == 'native':
    state = state_BxHxKxP.astype(dtype)
    state, y = _native(state, *inputs, loga, starts_BxL, read, chunk_length)
    return state, with_skip(y, v_BxLxHxP, skip_H)
  state = state_BxHxKxP.astype(jnp.float32)
  q, k, v = (x.astype(jnp.float32) for x in inputs)
  forms: dict[str, Callable[..., tuple[jax.Array, jax.Array]]] = {
    'step': _single,
    'scan': _scan,
    'chunked': functools.partial(
      gla_chunked.run, chunk_length=chunk_length or CHUNK, operands=operands
    ),
    'associative': _associative,
    'pallas': functools.partial(_pallas, operands=operands),
  }
  run = forms[impl]
  if read == 'before':
    state, y = read_before(run, state, q, k, v, loga, starts_BxL)
  else:
    state, y = run(state, q, k, v, loga)
  return state.astype(dtype), with_skip(y, v_BxLxHxP, skip_H)


def of_heads(
  q_BxLxGxK: jax.Array,
  k_BxLxGxK: jax.Array,
  v_BxLxHxP: jax.Array,
  rate_BxLxH: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns each head's (q, k, v) of a recurrence without groups and rates."""
  heads = v_BxLxHxP.shape[2] // q_BxLxGxK.shape[2]
  q, k = (jnp.repeat(x, heads, 2) for x in (q_BxLxGxK, k_BxLxGxK))
  if rate_BxLxH is None:
    return q, k, v_BxLxHxP
  return q, k, (rate_BxLxH[..., None] * v_BxLxHxP).astype(v_BxLxHxP.dtype)


def with_skip(
  y_BxLxHxP: jax.Array, v_BxLxHxP: jax.Array, skip_H: jax.Array | None
) -> jax.Array:
  """Returns y + d v, in v's dtype."""
  if skip_H is not None:
    y_BxLxHxP = y_BxLxHxP + skip_H[None, None, :, None] * v_BxLxHxP
  return y_BxLxHxP.astype(v_BxLxHxP.dtype)


def _choose(q, v, operands, chunk_length):
  is_native = operands == 'float32' and not gla_native.lacking(v.dtype)
  if q.shape[1] == 1 and not (fixed_order.is_active() and is_native):
    impl = 'step'
  elif is_native:
    impl = 'native'
  elif chunk_length is None and _has_faster_kernels(q, v, operands):
    impl = 'pallas'
  else:
    impl = 'chunked'
  multiplying = impl in precision.MULTIPLYING
  operands = operands if multiplying else 'float32'
  checks.log_choice('gla.recurrence', impl, operands)
  return impl


def _has_faster_kernels(q, v, operands):
  if target.platform() != 'gpu':
    return False  # without loading them
  from rnn_jax.ops.gla import pallas as gla_pallas

  return gla_pallas.is_faster(q, v, operands)


def _step(state, inputs, read='after'):
  q, k, v, loga = (x.astype(jnp.float32) for x in inputs)
  old = state.astype(jnp.float32)
  new = jnp.exp(loga)[..., None] * old + k[..., None] * v[..., None, :]
  seen = new if read == 'after' else old
  return new, _einsum('bhk,bhkp->bhp', q, seen)


def read_before(
  run: Callable[..., tuple[jax.Array, jax.Array]],
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  starts: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
  """Returns `run`'s (state, y) with y_t = S_{t-1}^T q_t: one step earlier.

  Arguments are those of `recurrence`, in float32.
  """
  first = _einsum('bhk,bhkp->bhp', q[:, 0], state)[:, None]
  q = jnp.concatenate([q[:, 1:], jnp.zeros_like(q[:, :1])], 1)
  state, y = run(state, q, k, v, loga)
  y = jnp.concatenate([first, y[:, :-1]], 1)
  if starts is not None:
    y = jnp.where(starts[:, :, None, None] != 0, 0.0, y)
  return state, y


def _single(state, q, k, v, loga):
  state, y = _step(state, (q[:, 0], k[:, 0], v[:, 0], loga[:, 0]))
  return state, y[:, None]


def _native(state, q, k, v, loga, starts, read, chunk_length):
  # The library multiplies factors of one dtype.
  dtype = jnp.result_type(q, k, v)
  q, k, values = (x.astype(dtype) for x in (q, k, v))
  segment = min(chunk_length or gla_native.SEGMENT, q.shape[1])
  state, y = gla_native.recurrence(state, q, k, values, loga, read, segment)
  if read == 'before' and starts is not None:
    y = jnp.where(starts[:, :, None, None] != 0, 0, y)
  return state, y.astype(v.dtype)


def _pallas(state, q, k, v, loga, operands):
  if loga.shape[-1] == 1:
    from rnn_jax.ops.gla import ssd as gla_ssd

    return gla_ssd.run(state, q, k, v, loga, operands=operands)
  from rnn_jax.ops.gla import pallas as gla_pallas

  return gla_pallas.recurrence(state, q, k, v, loga, operands=operands)


def _scan(state, q, k, v, loga):
  by_time = tuple(x.swapaxes(0, 1) for x in (q, k, v, loga))
  state, y = jax.lax.scan(_step, state, by_time)
  return state, y.swapaxes(0, 1)


def _associative(state, q, k, v, loga):
  def compose(first, second):
    (a_1, b_1), (a_2, b_2) = first, second
    return a_1 * a_2, a_2 * b_1 + b_2

  # The initial state is one more step in front, with nothing to decay.
  kv = jnp.concatenate([state[:, None], k[..., None] * v[..., None, :]], 1)
  a = jnp.exp(loga)
  a = jnp.concatenate([jnp.ones_like(a[:, :1]), a], 1)[..., None]
  _, states = jax.lax.associative_scan(compose, (a, kv), axis=1)
  return states[:, -1], _einsum('blhk,blhkp->blhp', q, states[:, 1:])
