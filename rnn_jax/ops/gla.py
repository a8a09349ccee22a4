"""The gated linear recurrence with a matrix state (gated linear attention).

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

Shapes: q, k BxLxHxK; v, y BxLxHxP; the state BxHxKxP. `loga` = log a_t <= 0 is
BxLxHxK, or BxLxHx1 for one decay a head; -inf (a gate of 0) is allowed. The
state, the decays and all sums are float32 whatever the inputs' dtype; y has
v's. Read-before-update, y_t = S_{t-1}^T q_t, is `read='before'`.

The chunked form keeps one state a chunk, and blocks of steps meet through the
state. With a decay for each key row, sub-blocks of 4 steps in a block of 16
meet through keys decayed to the end of theirs, and steps of one sub-block pair
by pair: every factor is a product of decays <= 1 and none is divided by, so
that no gate can overflow. With one decay a head, a block is three matmuls and
a matrix of decays between its steps.
Source: Yang et al., "Gated Linear Attention Transformers", 2024.
"""

import functools
import logging

import jax
import jax.numpy as jnp

from rnn_jax import shapes

IMPLS = ('auto', 'step', 'scan', 'chunked', 'associative', 'pallas')
READS = ('after', 'before')
BLOCK = 16
SUB_BLOCK = 4
BLOCK_BY_HEAD = 32
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32

_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def step(state_BxHxKxP, q_BxHxK, k_BxHxK, v_BxHxP, loga_BxHxK, read='after'):
  """One step: the definition of the recurrence. Returns (state, y_BxHxP)."""
  return _step(
    state_BxHxKxP,
    (q_BxHxK, k_BxHxK, v_BxHxP, loga_BxHxK),
    read,
  )


def recurrence(
  state_BxHxKxP,
  q_BxLxHxK,
  k_BxLxHxK,
  v_BxLxHxP,
  loga_BxLxHxK,
  *,
  starts_BxL=None,
  impl='auto',
  chunk_length=64,
  read='after',
):
  """Runs the recurrence over time, any L >= 1.

  Args:
    state_BxHxKxP: the state before the first step.
    q_BxLxHxK: what is read.
    k_BxLxHxK: where it is written.
    v_BxLxHxP: what is written.
    loga_BxLxHxK: log-decays, <= 0; the last axis is K or 1.
    starts_BxL: nonzero where a document begins: the state is zeroed before
      that step.
    impl: one of IMPLS. A named one never falls back to another. 'pallas' needs
      a GPU; the format of its operands is `gla_pallas.operands_of` the inputs'.
    chunk_length: steps between the states that 'chunked' keeps for the
      backward pass; a multiple of BLOCK is fastest.
    read: 'after' or 'before' the update.

  Returns:
    (state_BxHxKxP in float32, y_BxLxHxP in v's dtype).

  Raises:
    ValueError: shapes disagree, or an option is none of its choices.
    NotImplementedError: `impl` can't compute these inputs.
  """
  _check(locals())
  length = q_BxLxHxK.shape[1]
  impl = _choose(length) if impl == 'auto' else impl
  if impl == 'step' and length != 1:
    raise NotImplementedError(
      f"impl='step' runs one step, not L={length}: use 'chunked' or 'scan'"
    )
  q, k, v, loga = (
    x.astype(jnp.float32)
    for x in (q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK)
  )
  if starts_BxL is not None:
    # A decay of exactly 0 forgets all that came before, gradients included.
    loga = jnp.where(starts_BxL[:, :, None, None] != 0, -jnp.inf, loga)
  run = {
    'step': _single,
    'scan': _scan,
    'chunked': functools.partial(_chunked, chunk_length=chunk_length),
    'associative': _associative,
    'pallas': functools.partial(
      _pallas, dtype=jnp.result_type(q_BxLxHxK, k_BxLxHxK, v_BxLxHxP)
    ),
  }[impl]
  state = state_BxHxKxP.astype(jnp.float32)
  if read == 'before':
    state, y = _read_before(run, state, q, k, v, loga, starts_BxL)
  else:
    state, y = run(state, q, k, v, loga)
  return state, y.astype(v_BxLxHxP.dtype)


def _check(given):
  shapes.check(
    state_BxHxKxP=given['state_BxHxKxP'],
    q_BxLxHxK=given['q_BxLxHxK'],
    k_BxLxHxK=given['k_BxLxHxK'],
    v_BxLxHxP=given['v_BxLxHxP'],
  )
  expected, loga = given['q_BxLxHxK'].shape, given['loga_BxLxHxK'].shape
  if loga not in (expected, (*expected[:-1], 1)):
    raise ValueError(
      f'loga_BxLxHxK has shape {loga}: give {expected}, or '
      f'{(*expected[:-1], 1)} for one decay a head'
    )
  starts = given['starts_BxL']
  if starts is not None and starts.shape != expected[:2]:
    raise ValueError(f'starts_BxL has shape {starts.shape}, not {expected[:2]}')
  if expected[1] < 1:
    raise ValueError('q_BxLxHxK has L=0: give one step or more')
  if given['impl'] not in IMPLS:
    raise ValueError(f'impl={given["impl"]!r}: choose one of {IMPLS}')
  if given['read'] not in READS:
    raise ValueError(f'read={given["read"]!r}: choose one of {READS}')
  if given['chunk_length'] < 1:
    raise ValueError(f'chunk_length={given["chunk_length"]}: give 1 or more')


def _choose(length):
  # On a GPU too: 'pallas' is chosen once measured to be no slower there.
  impl = 'step' if length == 1 else 'chunked'
  _log_once(impl)
  return impl


@functools.cache
def _log_once(impl):
  logging.info("gla.recurrence: impl='auto' runs %r", impl)


def _step(state, inputs, read='after'):
  q, k, v, loga = (x.astype(jnp.float32) for x in inputs)
  old = state.astype(jnp.float32)
  new = jnp.exp(loga)[..., None] * old + k[..., None] * v[..., None, :]
  seen = new if read == 'after' else old
  return new, _einsum('bhk,bhkp->bhp', q, seen)


def _read_before(run, state, q, k, v, loga, starts):
  """y_t = S_{t-1}^T q_t is the usual read one step earlier."""
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


def _pallas(state, q, k, v, loga, dtype):
  from rnn_jax.ops import gla_pallas

  operands = gla_pallas.operands_of(dtype)
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


def _chunked(state, q, k, v, loga, chunk_length):
  B, L, H, K = q.shape
  block = _block_length(chunk_length, by_head=loga.shape[-1] < K)
  # As many chunks as that length needs, but no longer than they must be.
  chunks = -(-L // chunk_length)
  chunk = -(-L // (chunks * block)) * block
  pad = chunks * chunk - L
  blocks = tuple(
    _to_blocks(_pad_time(x, pad), chunk, block) for x in (q, k, v, loga)
  )
  state = state.reshape(B * H, K, -1)
  state, y = jax.lax.scan(jax.checkpoint(_chunk), state, blocks)
  # y is chunks x blocks x BH x steps x P.
  y = y.reshape(-1, B, H, block, y.shape[-1]).transpose(1, 0, 3, 2, 4)
  return state.reshape(B, H, K, -1), y.reshape(B, L + pad, H, -1)[:, :L]


def _block_length(chunk_length, by_head):
  """The longest block that divides a chunk and is no longer than allowed."""
  most = BLOCK_BY_HEAD if by_head else BLOCK
  return max(n for n in range(1, most + 1) if chunk_length % n == 0)


def _pad_time(x, pad):
  """Adds steps that write nothing, forget nothing, and are not read."""
  return jnp.pad(x, [(0, 0), (0, pad), (0, 0), (0, 0)]) if pad else x


def _to_blocks(x, chunk, block):
  """BxLxHxK to chunks x blocks x BH x steps x K."""
  B, L, H, K = x.shape
  x = x.reshape(B, L // chunk, chunk // block, block, H, K)
  x = x.transpose(1, 2, 0, 4, 3, 5)
  return x.reshape(L // chunk, chunk // block, B * H, block, K)


def _chunk(state, inputs):
  q, k, v, loga = inputs
  by_head = loga.shape[-1] < k.shape[-1]
  scores_of = _head_scores if by_head else _key_scores
  scores, k_to_end, decay = scores_of(q, k, loga)
  y_within = _einsum('nmij,nmjp->nmip', scores, v)
  written = _einsum('nmjk,nmjp->nmkp', k_to_end, v)
  q_from_start = q * decay
  y = []
  for n in range(q.shape[0]):
    y.append(y_within[n] + _einsum('mik,mkp->mip', q_from_start[n], state))
    state = decay[n, :, -1][..., None] * state + written[n]
  return state, jnp.stack(y)


def _head_scores(q, k, loga):
  """What block-mates say to each other, with one decay a head.

  Log-decays are added up between each pair of steps by a matmul with zeros and
  ones, rather than as differences of two cumulative sums, which lose digits.

  Returns:
    scores: ..., steps i x steps j: sum_K q_i k_j prod_{j<t<=i} a_t for j <= i.
    k_to_end: k_j prod_{t>j} a_t.
    decay: prod_{t<=i} a_t.
  """
  loga = jnp.maximum(loga[..., 0], FORGOTTEN)  # -inf times zero is no zero
  steps = loga.shape[-1]
  upto = jnp.tril(jnp.ones((steps, steps)))  # 1 where t <= i
  behind = jnp.tril(jnp.ones((steps, steps), bool), -1).T  # j x t: t > j
  spans = jnp.where(behind, loga[..., None, :], 0.0)
  spans = _einsum('...jt,it->...ji', spans, upto)
  between = jnp.where(behind | jnp.eye(steps, dtype=bool), jnp.exp(spans), 0.0)
  scores = _einsum('...jk,...ik->...ji', k, q) * between
  to_end = between[..., -1:]
  decay = jnp.exp(_einsum('...t,it->...i', loga, upto))[..., None]
  return scores.swapaxes(-1, -2), k * to_end, decay


def _key_scores(q, k, loga):
  """As `_head_scores`, with a decay for each key row."""
  a = jnp.exp(loga)
  *batch, steps, width = q.shape
  sub = max(n for n in range(1, SUB_BLOCK + 1) if steps % n == 0)
  q, k, a = (x.reshape(*batch, steps // sub, sub, width) for x in (q, k, a))
  within, k_to_end = _direct_scores(q, k, a)
  decay = _cumulative_product(a)
  rows, decays, keys, so_far = [], [], None, None
  for i in range(steps // sub):
    here = decay[..., i, :, :]
    row = within[..., i, :, :]
    if i:
      past = _einsum('...ik,...jk->...ij', q[..., i, :, :] * here, keys)
      row = jnp.concatenate([past, row], -1)
    rows.append(_pad_last(row, steps))
    last = here[..., -1:, :]
    ours = k_to_end[..., i, :, :]
    keys = jnp.concatenate([keys * last, ours], -2) if i else ours
    decays.append(so_far * here if i else here)
    so_far = decays[-1][..., -1:, :]
  return jnp.concatenate(rows, -2), keys, jnp.concatenate(decays, -2)


def _direct_scores(q, k, a):
  """Scores pair by pair; the keys decay along as the reader moves on."""
  steps, rows, keys = q.shape[-2], [], k[..., :1, :]
  for i in range(steps):
    if i:
      keys = keys * a[..., i : i + 1, :]
      keys = jnp.concatenate([keys, k[..., i : i + 1, :]], -2)
    rows.append(_pad_last(jnp.sum(q[..., i : i + 1, :] * keys, -1), steps))
  return jnp.stack(rows, -2), keys


def _cumulative_product(a):
  products = [a[..., :1, :]]
  for i in range(1, a.shape[-2]):
    products.append(products[-1] * a[..., i : i + 1, :])
  return jnp.concatenate(products, -2)


def _pad_last(x, size):
  widths = [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])]
  return jnp.pad(x, widths)
