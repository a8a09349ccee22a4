"""The delta rule with a decay, and the general form of such a recurrence.

A linear recurrence with a matrix state that corrects what a key holds:

    S' = diag(a_t) S_{t-1}      S_t = S' + b_t k_t (v_t - S'^T k_t)^T
    y_t = S_t^T q_t

The decay comes first, and the correction reads the decayed state: the order of
Gated DeltaNet and Kimi Delta Attention. With b_t in [0, 2] and keys of norm 1
no state grows: 0 keeps what a key holds, 1 replaces it, 2 reflects it. The
general form, `general_recurrence`, reads by r_t and writes by w_t, and reads
the state before its decay, as RWKV-7 does:

    S_t = (diag(a_t) + w_t r_t^T) S_{t-1} + k_t v_t^T

It is the delta rule for r = a * k, w = -b k and keys b k. Whether its states
are bounded is up to the caller.

Shapes: q, k, r, w BxLxHxK; v, y BxLxHxP; b BxLxH; the state BxHxKxP. `loga` =
log a_t <= 0 is BxLxHxK, or BxLxHx1 for one decay a head; -inf (a gate of 0) is
allowed. Everything but the operands of matmuls is float32 whatever the inputs'
dtype; y has v's. A state that is given in bfloat16 is returned in it, rounded
after the last step.

The chunked form is in chunked.py, C++ for a CPU in native.py, kernels for a GPU
in pallas.
Sources: Schlag et al., "Linear Transformers Are Secretly Fast Weight
Programmers", 2021; Yang et al., "Gated Delta Networks: Improving Mamba2 with
Delta Rule", 2024; Kimi Team, "Kimi Linear", 2025; Peng et al., "RWKV-7 'Goose'
with Expressive Dynamic State Evolution", 2025.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import checks
from rnn_jax.ops import fixed_order
from rnn_jax.ops import precision
from rnn_jax.ops.delta import chunked as delta_chunked
from rnn_jax.ops.delta import native as delta_native

IMPLS = ('auto', 'step', 'scan', 'chunked', 'native', 'pallas')
MULTIPLYING = precision.MULTIPLYING
CHUNK = 64

_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def recurrence(
  state_BxHxKxP: jax.Array,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  beta_BxLxH: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs the delta rule over time, any L >= 1.

  Args:
    state_BxHxKxP: the state before the first step.
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys, of norm 1 or less.
    v_BxLxHxP: the values.
    loga_BxLxHxK: log-decays, <= 0; the last axis is K or 1.
    beta_BxLxH: how much of its key's value a step replaces, in [0, 2].
    starts_BxL: nonzero where a document begins: the state is zeroed before
      that step.
    impl: one of IMPLS. A named one never falls back to another. 'native' needs
      a CPU and the library of rnn_jax/native, 'pallas' a GPU. 'auto' is 'step'
      for one step outside fixed_order.evaluate, else 'native' where it can run
      and `operands` are float32, else 'chunked'.
    chunk_length: steps between the states that 'chunked', 'native' and 'pallas'
      store for the backward pass. None: CHUNK, delta_native.SEGMENT, and as
      many as delta_pallas.MEMORY allows. 'chunked' and 'pallas' round it up to
      whole blocks, of at most delta_chunked.BLOCK and delta_pallas.LONGEST.
    operands: one of precision.RECURRENT, the format of the operands of matmuls,
      which 'chunked' and 'pallas' have; the other forms multiply in float32.

  Returns:
    (state_BxHxKxP in float32, or in bfloat16 if it was given so; y_BxLxHxP in
    v's dtype).

  Raises:
    ValueError: shapes disagree, or an unknown option.
    NotImplementedError: `impl` can't compute these inputs.
  """
  shapes.check(q_BxLxHxK=q_BxLxHxK, beta_BxLxH=beta_BxLxH)
  arrays = state_BxHxKxP, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK
  options = _Options(impl, chunk_length, operands)
  return _run(arrays, (beta_BxLxH,), starts_BxL, options)


def general_recurrence(
  state_BxHxKxP: jax.Array,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  read_BxLxHxK: jax.Array,
  write_BxLxHxK: jax.Array,
  *,
  starts_BxL: jax.Array | None = None,
  impl: str = 'auto',
  chunk_length: int | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs the general form over time, any L >= 1.

  Arguments, results and errors are those of `recurrence`, except for the keys,
  which may have any norm, and:

  Args:
    state_BxHxKxP: the state before the first step.
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys.
    v_BxLxHxP: the values.
    loga_BxLxHxK: log-decays.
    read_BxLxHxK: r, what reads the state before its decay.
    write_BxLxHxK: w, by which the reading is written.
    starts_BxL: nonzero where a document begins.
    impl: one of IMPLS.
    chunk_length: steps between stored states.
    operands: one of precision.RECURRENT.
  """
  shapes.check(
    q_BxLxHxK=q_BxLxHxK, read_BxLxHxK=read_BxLxHxK, write_BxLxHxK=write_BxLxHxK
  )
  arrays = state_BxHxKxP, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK
  others = read_BxLxHxK, write_BxLxHxK
  options = _Options(impl, chunk_length, operands)
  return _run(arrays, others, starts_BxL, options)


class _Options(NamedTuple):
  """The options of both forms."""

  impl: str
  chunk_length: int | None
  operands: str


def _run(arrays, others, starts, options):
  """Runs either form: `others` are (beta,), or (read, write)."""
  _check(arrays, starts, options)
  impl, chunk_length, operands = options
  state, q, k, v, loga = arrays
  kept, dtype = checks.state_dtype(state), v.dtype
  impl = _choose(q.shape[1], operands) if impl == 'auto' else impl
  checks.check_one_step(impl, q.shape[1])
  loga = loga.astype(jnp.float32)
  if starts is not None:
    # A decay of exactly 0 forgets all earlier steps, gradients included.
    begins = starts[:, :, None, None] != 0
    loga = jnp.where(begins, -jnp.inf, loga)
    if len(others) > 1:  # it reads the state before its decay
      others = jnp.where(begins, 0, others[0]), others[1]
  if impl == 'pallas':  # it reads other formats, and logs
    steps = state.astype(jnp.float32), q, k, v, loga, others
    state, y = _pallas(*steps, chunk_length, operands)
    return state.astype(kept), y.astype(dtype)
  state = state.astype(kept if impl == 'native' else jnp.float32)
  q, k, v, *others = (x.astype(jnp.float32) for x in (q, k, v, *others))
  a = jnp.exp(loga)
  forms: dict[str, Callable[..., tuple[jax.Array, jax.Array]]] = {
    'step': _single,
    'scan': _scan,
    'chunked': functools.partial(
      delta_chunked.run, chunk_length=chunk_length or CHUNK, operands=operands
    ),
    'native': functools.partial(
      delta_native.run, segment=chunk_length or delta_native.SEGMENT
    ),
  }
  state, y = forms[impl](state, q, k, v, a, tuple(others))
  return state.astype(kept), y.astype(dtype)


def _check(arrays, starts, options):
  impl, chunk_length, operands = options
  state, q, k, v, loga = arrays
  shapes.check(state_BxHxKxP=state, q_BxLxHxK=q, k_BxLxHxK=k, v_BxLxHxP=v)
  checks.check_decays(loga, q.shape)
  checks.check_rows('q_BxLxHxK', q, starts)
  checks.check_form(impl, IMPLS, chunk_length)
  precision.check_recurrent(operands, impl, MULTIPLYING)


def _choose(length, operands):
  is_native = operands == 'float32' and not delta_native.lacking()
  if length == 1 and not (fixed_order.is_active() and is_native):
    impl = 'step'
  elif is_native:
    impl = 'native'
  else:
    impl = 'chunked'
  operands = operands if impl in MULTIPLYING else 'float32'
  checks.log_choice('delta.recurrence', impl, operands)
  return impl


def _step(state, inputs):
  """Runs one step, the definition of both recurrences."""
  q, k, v, a, *others = inputs
  decayed = a[..., None] * state
  if len(others) == 1:
    error = v - _read(decayed, k)
    new = decayed + _outer(others[0][..., None] * k, error)
  else:
    read, write = others
    new = decayed + _outer(k, v) + _outer(write, _read(state, read))
  return new, _read(new, q)


def _read(state, x_BxHxK):
  return _einsum('bhkp,bhk->bhp', state, x_BxHxK)


def _outer(x_BxHxK, y_BxHxP):
  return x_BxHxK[..., None] * y_BxHxP[..., None, :]


def _single(state, q, k, v, a, others):
  state, y = _step(state, [x[:, 0] for x in (q, k, v, a, *others)])
  return state, y[:, None]


def _pallas(*arrays):
  from rnn_jax.ops.delta import pallas as delta_pallas

  return delta_pallas.run(*arrays)


def _scan(state, q, k, v, a, others):
  by_time = tuple(x.swapaxes(0, 1) for x in (q, k, v, a, *others))
  state, y = jax.lax.scan(_step, state, by_time)
  return state, y.swapaxes(0, 1)
