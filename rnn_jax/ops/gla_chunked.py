"""The chunked form of the gated linear recurrence, forward and backward.

Of a chunk of steps only the state before it is kept; the backward pass makes
the rest again. Inside a chunk, blocks of c steps meet through the state:

    y = A v + q~ S        S' = diag(b) S + k~^T v

A_ij = sum_K q_i k_j prod_{j<t<=i} a_t is what step i of a block reads of step
j <= i; q~_i = q_i prod_{t<=i} a_t; k~_j = k_j prod_{t>j} a_t; b = prod_t a_t.
Backward, with E the gradient of a block's last state:

    dA = dy v^T        dq~ = dy S^T        dv = A^T dy + k~ E
    dk~ = v E^T        db = sum_P S E      E <- diag(b) E + q~^T dy

and from there to q, k and log a through the sums and exponentials that A, q~,
k~ and b are made of. Every decay is the exponential of a sum of logs <= 0 over
just the steps between two others: nothing is divided, no two sums are
subtracted, and a gate of 0 or 1 is like any other, gradients included.

Shapes: q, k BxLxHxK; v BxLxHxP; loga BxLxHxK, or BxLxHx1; the state BxHxKxP;
all float32. A chunk is n blocks of c steps of m = BH sequences.
Source: Yang et al., "Gated Linear Attention Transformers", 2024.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 16
SUB_BLOCK = 4
BLOCK_BY_HEAD = 32
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32, and 0 times it is no NaN
INLINED = 16  # blocks of a chunk that are not a loop of their own

_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def run(state, q, k, v, loga, chunk_length):
  """Returns (state, y) behind the steps; see the module's docstring."""
  L = q.shape[1]
  by_head = loga.shape[-1] < q.shape[-1]
  block = _block_length(chunk_length, by_head)
  # As many chunks as that length needs, but no longer than they must be.
  chunks = -(-L // chunk_length)
  pad = -(-L // (chunks * block)) * block * chunks - L
  steps = tuple(_pad_time(x, pad) for x in (q, k, v, loga))
  state, y = _run(chunks, block, state, *steps)
  return state, y[:, :L]


def _block_length(chunk_length, by_head):
  """The longest block that divides a chunk and is no longer than allowed."""
  most = BLOCK_BY_HEAD if by_head else BLOCK
  return max(n for n in range(1, most + 1) if chunk_length % n == 0)


def _pad_time(x, pad):
  """Adds steps that write nothing, forget nothing, and are not read."""
  return jnp.pad(x, [(0, 0), (0, pad), (0, 0), (0, 0)]) if pad else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _run(chunks, block, state, q, k, v, loga):
  return _forward(chunks, block, state, q, k, v, loga)[0]


def _forward(chunks, block, state, q, k, v, loga):
  B, _, H, K = q.shape
  parts, lay, _ = _form(B, K, chunks, block, loga)

  def advance(state, inputs):
    q, k, v, loga = inputs
    scores, q_decayed, k_decayed, decay = parts(q, k, loga)
    written = _einsum('nmkj,nmjp->nmkp', _turned(k_decayed), v)
    states, new = _states(state, decay[..., None], written)
    y = _einsum('nmij,nmjp->nmip', scores, v)
    return new, (y + _einsum('nmik,nmkp->nmip', q_decayed, states), state)

  inputs = lay(q), lay(k), _by_block(v, chunks, block), lay(loga)
  first = state.reshape(B * H, K, -1)
  last, (y, kept) = jax.lax.scan(advance, first, inputs)
  result = last.reshape(state.shape), _from_block(y, B)
  return result, (kept, q, k, v, loga)


def _backward(chunks, block, residuals, cotangents):
  kept, q, k, v, loga = residuals
  d_state, d_y = cotangents
  B, _, H, K = q.shape
  parts, lay, unlay = _form(B, K, chunks, block, loga)
  v, d_y = (_by_block(x, chunks, block) for x in (v, d_y))
  inputs = kept.swapaxes(-1, -2), lay(q), lay(k), v, lay(loga), d_y
  last = d_state.reshape(B * H, K, -1).swapaxes(-1, -2)
  first, (d_q, d_k, d_v, d_loga) = jax.lax.scan(
    functools.partial(_chunk_backward, parts), last, inputs, reverse=True
  )
  d_state = first.swapaxes(-1, -2).reshape(d_state.shape)
  return d_state, unlay(d_q), unlay(d_k), _from_block(d_v, B), unlay(d_loga)


_run.defvjp(_forward, _backward)


def _chunk_backward(parts, d_state, inputs):
  """One chunk, from the gradient of its last state to that of its first.

  States lie transposed here, m x P x K: each product is then a matmul of rows
  by columns as they lie in memory, and decays multiply along the last axis.
  """
  state, q, k, v, loga, d_y = inputs
  (scores, q_decayed, k_decayed, decay), back = jax.vjp(parts, q, k, loga)
  v_turned, d_y_turned = _turned(v), _turned(d_y)
  decays = decay[..., None, :]
  written = _einsum('nmpj,nmjk->nmpk', v_turned, k_decayed)
  states, _ = _states(state, decays, written)
  read = _einsum('nmpi,nmik->nmpk', d_y_turned, q_decayed)
  d_states, d_first = _states(d_state, decays, read, reverse=True)
  d_scores = _einsum('nmip,nmpj->nmij', d_y, v_turned)
  d_q_decayed = _einsum('nmip,nmpk->nmik', d_y, states)
  d_k_decayed = _einsum('nmjp,nmpk->nmjk', v, d_states)
  d_v = _einsum('nmpi,nmij->nmpj', d_y_turned, scores)
  d_v += _einsum('nmpk,nmkj->nmpj', d_states, _turned(k_decayed))
  d_decay = jnp.sum(states * d_states, -2)
  if decay.shape[-1] == 1:
    d_decay = jnp.sum(d_decay, -1, keepdims=True)
  d_q, d_k, d_loga = back((d_scores, d_q_decayed, d_k_decayed, d_decay))
  return d_first, (d_q, d_k, _turned(d_v), d_loga)


def _states(state, decays, written, reverse=False):
  """Returns (the state before each block, the state behind the last)."""

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


def _turned(x):
  """The last two axes exchanged, in memory too where that pays."""
  x = x.swapaxes(-1, -2)
  # A CPU's fast matmuls take rows by columns only.
  cpu = jax.default_backend() == 'cpu'
  return jax.lax.optimization_barrier(x) if cpu else x


def _form(B, K, chunks, block, loga):
  """How q, k and loga lie for the arithmetic of their kind of decay.

  Returns:
    parts: (q, k, loga) of a chunk -> (A, q~, k~, b), of shapes nxmxcxc, nxmxcxK
      twice, and nxmxK or nxmx1.
    lay: arrays BxLx... to chunks of what `parts` reads.
    unlay: the inverse.
  """
  if loga.shape[-1] < K:
    lay = functools.partial(_by_block, chunks=chunks, block=block)
    return _head_parts, lay, functools.partial(_from_block, B=B)
  lay = functools.partial(_by_step, chunks=chunks, block=block)
  return _key_parts, lay, functools.partial(_from_step, B=B)


def _by_block(x, chunks, block):
  """BxLxHxK to chunks x n x m x c x K."""
  B, L, H, K = x.shape
  x = x.reshape(B, chunks, -1, block, H, K).transpose(1, 2, 0, 4, 3, 5)
  return x.reshape(chunks, -1, B * H, block, K)


def _from_block(x, B):
  chunks, n, m, block, K = x.shape
  x = x.reshape(chunks, n, B, m // B, block, K).transpose(2, 0, 1, 4, 3, 5)
  return x.reshape(B, chunks * n * block, m // B, K)


def _by_step(x, chunks, block):
  """BxLxHxK to chunks x c x n x m x K."""
  B, L, H, K = x.shape
  x = x.reshape(B, chunks, -1, block, H, K).transpose(1, 3, 2, 0, 4, 5)
  return x.reshape(chunks, block, -1, B * H, K)


def _from_step(x, B):
  chunks, block, n, m, K = x.shape
  x = x.reshape(chunks, block, n, B, m // B, K).transpose(3, 0, 2, 1, 4, 5)
  return x.reshape(B, chunks * n * block, m // B, K)


def _head_parts(q, k, loga):
  """With one decay a head, A is a matmul times a matrix of decays."""
  loga = jnp.maximum(loga[..., 0], FORGOTTEN)
  steps = loga.shape[-1]
  upto = np.tril(np.ones((steps, steps), np.float32))  # 1 where t <= i
  behind = np.tril(np.ones((steps, steps), bool), -1).T  # j x t: t > j
  spans = jnp.where(behind[None, None], loga[..., None, :], 0.0)
  spans = _einsum('nmjt,it->nmji', spans, upto)
  readable = (behind | np.eye(steps, dtype=bool))[None, None]
  between = jnp.where(readable, jnp.exp(spans), 0.0)
  scores = _einsum('nmjk,nmik->nmji', k, q) * between
  decay = jnp.exp(_einsum('nmt,it->nmi', loga, upto))[..., None]
  to_end = between[..., -1:]
  return scores.swapaxes(-1, -2), q * decay, k * to_end, decay[:, :, -1]


def _key_parts(q, k, loga):
  """With a decay for each key row, in sub-blocks; c x n x m x K each.

  Steps of one sub-block meet pair by pair, sub-blocks by matmuls of queries
  decayed from the start of theirs with keys decayed up to there.
  """
  block = q.shape[0]
  sub = max(s for s in range(1, SUB_BLOCK + 1) if block % s == 0)
  q, k, loga = (
    _apart(x.reshape(-1, sub, *x.shape[1:]).swapaxes(0, 1))
    for x in (q, k, jnp.maximum(loga, FORGOTTEN))
  )
  decays, last = _decays(loga), sub - 1
  scores = _pair_scores(q, k, decays)
  q = [q[i] * decays[0, i] for i in range(sub)]
  k = [k[j] * decays[j + 1, last] for j in range(last)] + k[last:]
  q, k = (jnp.stack(x).transpose(1, 2, 3, 0, 4) for x in (q, k))  # u n m s K
  return _join(scores, q, k, decays[0, last])


def _apart(x):
  """The first axis as a list. Derivatives of x[i] would be sums of pads."""
  parts = jax.lax.split(x, [1] * x.shape[0])
  return [jax.lax.squeeze(part, [0]) for part in parts]


def _decays(loga):
  """{(i, j): the product of decays i to j}, of logs in order of time."""
  sums = {}
  for j, step in enumerate(loga):
    for i in range(j):
      sums[i, j] = sums[i, j - 1] + step
    sums[j, j] = step
  return {span: jnp.exp(total) for span, total in sums.items()}


def _pair_scores(q, k, decays):
  """Scores u x n x m x i x j of the steps of each sub-block."""
  rows = []
  for i, query in enumerate(q):
    row = [jnp.sum(query * k[j] * decays[j + 1, i], -1) for j in range(i)] + [
      jnp.sum(query * k[i], -1)
    ]
    row += [jnp.zeros_like(row[0])] * (len(q) - 1 - i)
    rows.append(jnp.stack(row, -1))
  return jnp.stack(rows, -2)


def _join(scores, q, k, decay):
  """From sub-blocks (u x n x m x ...) to blocks: A, q~, k~, b."""
  count, *_, sub, _ = q.shape
  scores, q, k, decay = map(_apart, (scores, q, k, decay))
  rows, queries, keys, so_far = [], [], None, None
  for i in range(count):
    row = scores[i]
    if i:
      past = _einsum('nmik,nmjk->nmij', q[i], keys)
      row = jnp.concatenate([past, row], -1)
    behind = (count - 1 - i) * sub
    rows.append(jnp.pad(row, [(0, 0)] * 3 + [(0, behind)]))
    queries.append(q[i] * so_far[:, :, None] if i else q[i])
    keys = (
      jnp.concatenate([keys * decay[i][:, :, None], k[i]], -2) if i else k[i]
    )
    so_far = so_far * decay[i] if i else decay[i]
  return jnp.concatenate(rows, -2), jnp.concatenate(queries, -2), keys, so_far
