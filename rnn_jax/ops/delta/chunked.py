"""The chunked form of the delta rule and of its general form.

Only the state before each chunk of steps is stored; the backward pass runs a
chunk again. A chunk is n blocks of c steps. With S the state before a block,

    y = A x + q~ S        S <- diag(b) S + w~^T x

where x are the rows that the block's steps write, by w: the delta rule writes x
= beta (v - its reading) by w = k, the general form x = [v; u] by w = [k; w].
What a step reads depends on the steps before it, a triangular system (the WY
form) with the scores R of readers r, which are beta k * a in the delta rule and
minus the read vectors in the general form:

    (I + R) x = beta v - r~ S        (I + R_w) u = -R_k v - r~ S

All of A, R, q~, r~, w~, b and T, the inverse, come from joining halves, from
single steps up. With halves 1 and 2, for any reader r and writer w:

    scores   [[A_1, 0], [r~_2 w~_1^T, A_2]]        b = b_1 b_2
    r~       [r~_1, r~_2 b_1]        w~  [w~_1 b_2, w~_2]
    inverse  [[T_1, 0], [-T_2 R_21 T_1, T_2]]

Every decay is thus a product over exactly the steps between two others: nothing
is divided, no two sums are subtracted, and gates of 0 and 1 need no special
case, gradients included.

The operands of matmuls have a format of `precision.RECURRENT`, except where
inverses are joined: there, rounding errors would grow with each join.

Only the state goes from block to block; all else is computed of all blocks of a
chunk at once.

Shapes: q, k, r, w BxLxHxK; v BxLxHxP; a BxLxHxK, or BxLxHx1; beta BxLxH; the
state BxHxKxP; all float32. In a chunk there are m = n B H blocks.
Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over
Sequence Length", 2024.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops import precision

BLOCK = 16  # steps, a power of two
PAIRWISE = 4  # shorter sums are no matmuls
INLINED = 16  # blocks of a chunk that are unrolled


class Blocks(NamedTuple):
  """What m blocks of c steps are to a state, with W writers.

  The first of two writers writes rows that are given, the last one reads the
  state before the block: its rows are own + weights S.

  Attributes:
    decay: b, mx1xK.
    writers: w~, mxWxcxK.
    own: mxWxcxP, what is written if that state is zero.
    weights: mxcxK.
    readers: q~, mxcxK.
    scores: A, mxWxcxc.
  """

  decay: jax.Array
  writers: jax.Array
  own: jax.Array
  weights: jax.Array
  readers: jax.Array
  scores: jax.Array


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  a: jax.Array,
  others: tuple[jax.Array, ...],
  chunk_length: int,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs either recurrence over time; see the module's docstring.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxHxK.
    k: BxLxHxK.
    v: BxLxHxP.
    a: the decays, BxLxHxK or BxLxHx1.
    others: (beta BxLxH,), or (r, w) of the general form.
    chunk_length: steps between stored states, 1 or more; rounded up to whole
      blocks, of at most BLOCK steps.
    operands: one of precision.RECURRENT, the format of the matmuls' operands.

  Returns:
    (state BxHxKxP, y BxLxHxP), float32.
  """
  B, L, H, K = q.shape
  block = block_length(min(chunk_length, L), K)
  chunks, blocks = division(L, chunk_length, block)
  pad = chunks * blocks * block - L
  # Appended steps forget nothing, write nothing, and aren't read.
  padded = [jnp.pad(x, _at_end(pad)) for x in (q, k, v)]
  padded.append(jnp.pad(a, _at_end(pad), constant_values=1))
  for x in others:
    padded.append(jnp.pad(x if x.ndim == 4 else x[..., None], _at_end(pad)))
  steps = [_to_chunks(x, chunks, block) for x in padded]
  last, y = _run(operands, state.reshape(B * H, *state.shape[2:]), *steps)
  y = y.reshape(chunks, blocks, B, H, block, -1).transpose(2, 0, 1, 4, 3, 5)
  return last.reshape(state.shape), y.reshape(B, L + pad, H, -1)[:, :L]


def block_length(steps: int, K: int, longest: int = BLOCK) -> int:
  """Returns a power of two: the block length for so many steps."""
  # Many reflections (beta = 2) of few dimensions make a triangular system whose
  # solution is far larger than its terms: with 16 steps and K = 3 errors are
  # four times those of a scan.
  accurate = 1 << max(1, (K // 2).bit_length() - 1)
  return min(longest, accurate, 1 << (steps - 1).bit_length())


def division(L: int, chunk_length: int, block: int) -> tuple[int, int]:
  """Returns (chunks, blocks of each): as many as needed, as short as possible.

  Args:
    L: steps.
    chunk_length: of a chunk, rounded up to whole blocks.
    block: steps of a block.
  """
  chunks = -(-L // (-(-chunk_length // block) * block))
  return chunks, -(-L // (chunks * block))


def _at_end(pad):
  return [(0, 0), (0, pad), (0, 0), (0, 0)]


def _to_chunks(x, chunks, block):
  """Reshapes BxLxHxK to chunks x m x c x K, blocks first in m."""
  B, _, H, K = x.shape
  x = x.reshape(B, chunks, -1, block, H, K).transpose(1, 2, 0, 4, 3, 5)
  return x.reshape(chunks, -1, block, K)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(operands, state, *steps):
  return _forward(operands, state, *steps)[0]


def _forward(operands, state, *steps):
  def advance(state, steps):
    new, y = _chunk(operands, state, *steps)
    return new, (y, state)

  last, (y, kept) = jax.lax.scan(advance, state, steps)
  return (last, y), (kept, steps)


def _backward(operands, residuals, cotangents):
  kept, steps = residuals
  d_state, d_y = cotangents

  def retreat(d_state, inputs):
    state, steps, d_y = inputs
    _, back = jax.vjp(functools.partial(_chunk, operands), state, *steps)
    d_state, *d_steps = back((d_state, d_y))
    return d_state, tuple(d_steps)

  d_state, d_steps = jax.lax.scan(
    retreat, d_state, (kept, steps, d_y), reverse=True
  )
  return d_state, *d_steps


_run.defvjp(_forward, _backward)


class _Parts(NamedTuple):
  """What joins n parts of h steps, for two readers and W writers.

  The parts of a block follow one another, so that XLA sees few axes: its sums
  and matmuls on a CPU crash on more (jax 0.10).
  """

  readers: jax.Array  # q~ and r~, n x 2 x h x K
  writers: jax.Array  # w~, n x W x h x K
  decay: jax.Array  # b, n x 1 x 1 x K
  scores: jax.Array  # A and R, n x 2 x W x h x h
  inverse: jax.Array  # T, of I + R of the last writer, n x h x h


def _chunk(operands, state, *steps):
  """Runs one chunk. Returns (state, y mxcxP)."""
  return _loop(operands, state, _blocks(operands, *steps))


def _blocks(operands, q, k, v, a, *others):
  """Returns the Blocks of a chunk."""
  matmul = functools.partial(_matmul, operands=operands)
  join = functools.partial(_parts, operands)
  if len(others) == 1:
    (beta,) = others
    parts = join(q * a, beta * a * k, (q, jnp.zeros_like(q)), (k,), a)
    own = matmul(parts.inverse, beta * v)[:, None]
  else:
    read, write = others
    parts = join(q * a, -read, (q, jnp.zeros_like(q)), (k, write), a)
    u = -matmul(parts.inverse, matmul(parts.scores[:, 1, 0], v))
    own = jnp.stack([v, u], 1)
  return Blocks(
    decay=parts.decay[:, 0],
    writers=parts.writers,
    own=own,
    weights=-matmul(parts.inverse, parts.readers[:, 1]),
    readers=parts.readers[:, 0],
    scores=parts.scores[:, 0],
  )


def _loop(operands, state, blocks):
  """Carries the state through the blocks, one after the other."""
  m, W, c, K = blocks.writers.shape
  writers, own = (x.reshape(m, W * c, -1) for x in (blocks.writers, blocks.own))
  weights = blocks.weights
  if W > 1:
    weights = jnp.concatenate([jnp.zeros_like(weights), weights], 1)
  n, inputs = m // len(state), (blocks.decay, writers, own, weights)
  state, (rows, states) = jax.lax.scan(
    functools.partial(_block, operands),
    state,
    jax.tree.map(lambda x: x.reshape(n, -1, *x.shape[1:]), inputs),
    unroll=min(INLINED, n),
  )
  rows, states = (x.reshape(m, *x.shape[2:]) for x in (rows, states))
  scores = blocks.scores.swapaxes(1, 2).reshape(m, c, W * c)
  y = _matmul(scores, rows, operands)
  return state, y + _matmul(blocks.readers, states, operands)


def _block(operands, state, inputs):
  """Returns (the state after a block, (what its steps write, the state))."""
  decay, writers, own, weights = inputs
  rows = own + _matmul(weights, state, operands)
  written = precision.einsum('mjk,mjp->mkp', writers, rows, operands)
  return decay.swapaxes(-1, -2) * state + written, (rows, state)


def _parts(operands, q, r, own, writers, a):
  """Returns the _Parts of the m blocks: n = m and h = c.

  Args:
    operands: the format of matmuls' operands.
    q: the queries, decayed by their own step, m x c x K.
    r: the readers, as they read the state before their step.
    own: the queries and readers that see their own step's writing.
    writers: the writers.
    a: the decays.
  """
  c, n = q.shape[1], q.shape[0] * q.shape[1]

  def single(rows):
    return jnp.stack([x.reshape(n, -1) for x in rows], 1)[:, :, None]

  parts = _Parts(
    readers=single([q, r]),
    writers=single(writers),
    decay=single([a]),
    scores=_across(operands, single(own), single(writers)),
    inverse=jnp.ones((n, 1, 1)),
  )
  for _ in range(c.bit_length() - 1):  # c is a power of two
    parts = _join(operands, parts)
  return parts


def _join(operands, parts):
  """Joins pairs of parts."""
  first, second = zip(*map(_halves, parts), strict=True)
  first, second = _Parts(*first), _Parts(*second)
  across = _across(operands, second.readers, first.writers)
  later = -_matmul(second.inverse, across[:, 1, -1])
  return _Parts(
    jnp.concatenate([first.readers, second.readers * first.decay], -2),
    jnp.concatenate([first.writers * second.decay, second.writers], -2),
    first.decay * second.decay,
    _triangle(first.scores, across, second.scores),
    _triangle(first.inverse, _matmul(later, first.inverse), second.inverse),
  )


def _halves(x):
  # One split: its gradient is one concatenation, not a sum of padded parts.
  pairs = x.reshape(x.shape[0] // 2, 2, -1)
  halves = jax.lax.split(pairs, [1, 1], 1)
  return [half.reshape(-1, *x.shape[1:]) for half in halves]


def _across(operands, readers, writers):
  """Returns the scores n x 2 x W x h x h of later readers."""
  n, R, h, K = readers.shape
  x, y = readers.reshape(n, R * h, K), writers.reshape(n, -1, K)
  if h < PAIRWISE:
    scores = jnp.sum(x[:, :, None] * y[:, None], -1)
  else:
    scores = precision.einsum('nik,njk->nij', x, y, operands)
  return scores.reshape(n, R, h, -1, h).swapaxes(2, 3)


def _triangle(first, across, second):
  """Returns [[first, 0], [across, second]], of the last two axes."""
  rows = (
    jnp.concatenate([first, jnp.zeros_like(across)], -1),
    jnp.concatenate([across, second], -1),
  )
  return jnp.concatenate(rows, -2)


def _matmul(x, y, operands='float32'):
  if x.shape[-1] < PAIRWISE:
    return jnp.sum(x[..., None] * y[..., None, :, :], -2)
  return precision.einsum('nij,njk->nik', x, y, operands)
