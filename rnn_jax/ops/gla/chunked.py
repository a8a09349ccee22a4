"""The chunked form of the gated linear recurrence, forward and backward.

Only the state before each chunk of steps is stored; the backward pass
recomputes the rest. Inside a chunk, the state connects blocks of c steps:

    y = A v + q~ S        S' = diag(b) S + k~^T v

A_ij = sum_K q_i k_j prod_{j<t<=i} a_t is the score of step i of a block and
step j <= i; q~_i = q_i prod_{t<=i} a_t; k~_j = k_j prod_{t>j} a_t;
b = prod_t a_t. Backward, with E the gradient of a block's last state:

    dA = dy v^T        dq~ = dy S^T        dv = A^T dy + k~ E
    dk~ = v E^T        db = sum_P S E      E <- diag(b) E + q~^T dy

and from there to q, k and log a through the sums and exponentials in A, q~, k~
and b. Every decay is the exponential of a sum of logs <= 0 over exactly the
steps between two others: nothing is divided, no two sums are subtracted, and
gates of 0 and 1 need no special case, gradients included.

The matmuls' operands have a format of `precision.RECURRENT`. Decays, states,
all sums, and the scores within a sub-block, which are no matmuls, are float32.

Shapes: q, k BxLxHxK; v BxLxHxP; loga BxLxHxK, or BxLxHx1; the state BxHxKxP;
all float32. A chunk is n blocks of c steps of m = BH sequences.
Source: Yang et al., "Gated Linear Attention Transformers", 2024.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import precision
from rnn_jax.system import target

BLOCK = 16
SUB_BLOCK = 4
BLOCK_BY_HEAD = 32
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32, and 0 times it is no NaN
INLINED = 16  # blocks of a chunk that are unrolled


class _Plan(NamedTuple):
  """The static arguments of a run."""

  chunks: int
  block: int
  operands: str

  def product(self, spec, x, y):
    """Returns a matmul, float32."""
    return precision.einsum(spec, x, y, self.operands)


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  chunk_length: int,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time; see the module's docstring.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxHxK.
    k: BxLxHxK.
    v: BxLxHxP.
    loga: BxLxHxK or BxLxHx1.
    chunk_length: steps between stored states, 1 or more.
    operands: one of precision.RECURRENT, the format of the matmuls' operands.

  Returns:
    (state BxHxKxP, y BxLxHxP), float32.
  """
  L = q.shape[1]
  by_head = loga.shape[-1] < q.shape[-1]
  block = _block_length(chunk_length, by_head)
  # As many chunks as that length needs, but as short as possible.
  chunks = -(-L // chunk_length)
  pad = -(-L // (chunks * block)) * block * chunks - L
  steps = tuple(_pad_time(x, pad) for x in (q, k, v, loga))
  state, y = _run(_Plan(chunks, block, operands), state, *steps)
  return state, y[:, :L]


def _block_length(chunk_length, by_head):
  """Returns the longest admissible block that divides a chunk."""
  longest = BLOCK_BY_HEAD if by_head else BLOCK
  return max(n for n in range(1, longest + 1) if chunk_length % n == 0)


def _pad_time(x, pad):
  """Appends steps that write nothing, forget nothing, and aren't read."""
  return jnp.pad(x, [(0, 0), (0, pad), (0, 0), (0, 0)]) if pad else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(plan, state, q, k, v, loga):
  return _forward(plan, state, q, k, v, loga)[0]


def _forward(plan, state, q, k, v, loga):
  B, _, H, K = q.shape
  parts, to_chunks, _ = _form(plan, B, K, loga)

  def advance(state, inputs):
    q, k, v, loga = inputs
    scores, q_decayed, k_decayed, decay = parts(q, k, loga)
    written = plan.product('nmkj,nmjp->nmkp', _transposed(k_decayed), v)
    states, new = _states(state, decay[..., None], written)
    y = plan.product('nmij,nmjp->nmip', scores, v)
    y += plan.product('nmik,nmkp->nmip', q_decayed, states)
    return new, (y, state)

  inputs = (
    to_chunks(q),
    to_chunks(k),
    _by_block(plan, v),
    to_chunks(loga),
  )
  first = state.reshape(B * H, K, -1)
  last, (y, kept) = jax.lax.scan(advance, first, inputs)
  result = last.reshape(state.shape), _from_block(y, B)
  return result, (kept, q, k, v, loga)


def _backward(plan, residuals, cotangents):
  kept, q, k, v, loga = residuals
  d_state, d_y = cotangents
  B, _, H, K = q.shape
  parts, to_chunks, from_chunks = _form(plan, B, K, loga)
  v, d_y = (_by_block(plan, x) for x in (v, d_y))
  states = kept.swapaxes(-1, -2)
  inputs = states, to_chunks(q), to_chunks(k), v, to_chunks(loga), d_y
  last = d_state.reshape(B * H, K, -1).swapaxes(-1, -2)
  first, (d_q, d_k, d_v, d_loga) = jax.lax.scan(
    functools.partial(_chunk_backward, plan, parts), last, inputs, reverse=True
  )
  d_state = first.swapaxes(-1, -2).reshape(d_state.shape)
  d_q, d_k, d_v = from_chunks(d_q), from_chunks(d_k), _from_block(d_v, B)
  return d_state, d_q, d_k, d_v, from_chunks(d_loga)


_run.defvjp(_forward, _backward)


def _chunk_backward(plan, parts, d_state, inputs):
  """Runs one chunk backward, from the gradient of its last state to the first.

  States are transposed here, m x P x K: each product is then a matmul of
  contiguous rows by columns, and decays multiply along the last axis.
  """
  state, q, k, v, loga, d_y = inputs
  (scores, q_decayed, k_decayed, decay), back = jax.vjp(parts, q, k, loga)
  v_T, d_y_T = _transposed(v), _transposed(d_y)
  decays = decay[..., None, :]
  written = plan.product('nmpj,nmjk->nmpk', v_T, k_decayed)
  states, _ = _states(state, decays, written)
  read = plan.product('nmpi,nmik->nmpk', d_y_T, q_decayed)
  d_states, d_first = _states(d_state, decays, read, reverse=True)
  d_scores = plan.product('nmip,nmpj->nmij', d_y, v_T)
  d_q_decayed = plan.product('nmip,nmpk->nmik', d_y, states)
  d_k_decayed = plan.product('nmjp,nmpk->nmjk', v, d_states)
  d_v = plan.product('nmpi,nmij->nmpj', d_y_T, scores)
  d_v += plan.product('nmpk,nmkj->nmpj', d_states, _transposed(k_decayed))
  d_decay = jnp.sum(states * d_states, -2)
  if decay.shape[-1] == 1:
    d_decay = jnp.sum(d_decay, -1, keepdims=True)
  d_q, d_k, d_loga = back((d_scores, d_q_decayed, d_k_decayed, d_decay))
  return d_first, (d_q, d_k, _transposed(d_v), d_loga)


def _states(state, decays, written, reverse=False):
  """Returns (the state before each block, the state after the last)."""

  def advance(state, block):
    decay, written = block
    return decay * state + written, state

  last, states = jax.lax.scan(
    advance,
    state,
    (decays, written),
    reverse=reverse,
    unroll=min(INLINED, written.shape[0]),
  )
  return states, last


def _transposed(x):
  """Swaps the last two axes, on a CPU in memory too."""
  x = x.swapaxes(-1, -2)
  # A CPU's fast matmuls only take rows by columns.
  cpu = target.platform() == 'cpu'
  return jax.lax.optimization_barrier(x) if cpu else x


def _form(plan, B, K, loga):
  """Returns the arithmetic and the layout for the kind of decay.

  Returns:
    parts: (q, k, loga) of a chunk -> (A, q~, k~, b), of shapes nxmxcxc, nxmxcxK
      twice, and nxmxK or nxmx1.
    to_chunks: from arrays BxLx... to the chunks that `parts` reads.
    from_chunks: the inverse.
  """
  parts, to_chunks, from_chunks = (
    (_head_parts, _by_block, _from_block)
    if loga.shape[-1] < K
    else (_key_parts, _by_step, _from_step)
  )
  return (
    functools.partial(parts, plan),
    functools.partial(to_chunks, plan),
    functools.partial(from_chunks, B=B),
  )


def _by_block(plan, x):
  """Reshapes BxLxHxK to chunks x n x m x c x K."""
  B, _, H, K = x.shape
  x = x.reshape(B, plan.chunks, -1, plan.block, H, K)
  x = x.transpose(1, 2, 0, 4, 3, 5)
  return x.reshape(plan.chunks, -1, B * H, plan.block, K)


def _from_block(x, B):
  chunks, n, m, block, K = x.shape
  x = x.reshape(chunks, n, B, m // B, block, K).transpose(2, 0, 1, 4, 3, 5)
  return x.reshape(B, chunks * n * block, m // B, K)


def _by_step(plan, x):
  """Reshapes BxLxHxK to chunks x c x n x m x K."""
  B, _, H, K = x.shape
  x = x.reshape(B, plan.chunks, -1, plan.block, H, K)
  x = x.transpose(1, 3, 2, 0, 4, 5)
  return x.reshape(plan.chunks, plan.block, -1, B * H, K)


def _from_step(x, B):
  chunks, block, n, m, K = x.shape
  x = x.reshape(chunks, block, n, B, m // B, K).transpose(3, 0, 2, 1, 4, 5)
  return x.reshape(B, chunks * n * block, m // B, K)


def _head_parts(plan, q, k, loga):
  """Computes A as a matmul times a matrix of decays, one decay per head."""
  loga = jnp.maximum(loga[..., 0], FORGOTTEN)
  steps = loga.shape[-1]
  up_to = np.tril(np.ones((steps, steps), np.float32))  # 1 where t <= i
  later = np.tril(np.ones((steps, steps), bool), -1).T  # j x t: t > j
  spans = jnp.where(later[None, None], loga[..., None, :], 0.0)
  spans = _sum('nmjt,it->nmji', spans, up_to)
  readable = (later | np.eye(steps, dtype=bool))[None, None]
  between = jnp.where(readable, jnp.exp(spans), 0.0)
  scores = plan.product('nmjk,nmik->nmji', k, q) * between
  decay = jnp.exp(_sum('nmt,it->nmi', loga, up_to))[..., None]
  to_end = between[..., -1:]
  return scores.swapaxes(-1, -2), q * decay, k * to_end, decay[:, :, -1]


def _sum(spec, loga, steps):
  """Returns sums of log-decays over the steps that are 1."""
  return precision.einsum(spec, loga, steps, 'float32')


def _key_parts(plan, q, k, loga):
  """Computes the parts with a decay for each key row; inputs c x n x m x K.

  Scores within a sub-block are summed pair by pair. Those between sub-blocks
  are matmuls of queries decayed from the start of their sub-block with keys
  decayed up to there.
  """
  block = q.shape[0]
  sub = max(s for s in range(1, SUB_BLOCK + 1) if block % s == 0)
  q, k, loga = (
    _unstack(x.reshape(-1, sub, *x.shape[1:]).swapaxes(0, 1))
    for x in (q, k, jnp.maximum(loga, FORGOTTEN))
  )
  decays, last = _decays(loga), sub - 1
  scores = _pair_scores(q, k, decays)
  q = [q[i] * decays[0, i] for i in range(sub)]
  k = [k[j] * decays[j + 1, last] for j in range(last)] + k[last:]
  q, k = (jnp.stack(x).transpose(1, 2, 3, 0, 4) for x in (q, k))  # u n m s K
  return _join(plan, scores, q, k, decays[0, last])


def _unstack(x):
  """Returns a list over axis 0. Derivatives of x[i] would be sums of pads."""
  parts = jax.lax.split(x, [1] * x.shape[0])
  return [jax.lax.squeeze(part, [0]) for part in parts]


def _decays(loga):
  """Returns {(i, j): the product of decays i to j}, of logs in time order."""
  sums = {}
  for j, step in enumerate(loga):
    for i in range(j):
      sums[i, j] = sums[i, j - 1] + step
    sums[j, j] = step
  return {span: jnp.exp(total) for span, total in sums.items()}


def _pair_scores(q, k, decays):
  """Returns the scores u x n x m x i x j within each sub-block."""
  rows = []
  for i, query in enumerate(q):
    row = [jnp.sum(query * k[j] * decays[j + 1, i], -1) for j in range(i)] + [
      jnp.sum(query * k[i], -1)
    ]
    row += [jnp.zeros_like(row[0])] * (len(q) - 1 - i)
    rows.append(jnp.stack(row, -1))
  return jnp.stack(rows, -2)


def _join(plan, scores, q, k, decay):
  """Joins sub-blocks (u x n x m x ...) to blocks: A, q~, k~, b."""
  count, *_, sub, _ = q.shape
  scores, q, k, decay = map(_unstack, (scores, q, k, decay))
  rows, queries, keys, so_far = [], [], None, None
  for i in range(count):
    row = scores[i]
    if i:
      past = plan.product('nmik,nmjk->nmij', q[i], keys)
      row = jnp.concatenate([past, row], -1)
    later = (count - 1 - i) * sub
    rows.append(jnp.pad(row, [(0, 0)] * 3 + [(0, later)]))
    queries.append(q[i] * so_far[:, :, None] if i else q[i])
    keys = (
      jnp.concatenate([keys * decay[i][:, :, None], k[i]], -2) if i else k[i]
    )
    so_far = so_far * decay[i] if i else decay[i]
  return jnp.concatenate(rows, -2), jnp.concatenate(queries, -2), keys, so_far
