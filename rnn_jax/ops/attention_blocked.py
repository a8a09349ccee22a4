"""Softmax attention in blocks, forward and backward.

A block of queries goes over blocks of keys and carries its softmax along:

    m' = max(m, max_s x_s)                         x_s = q . k_s / sqrt(K)
    l' = e^(m - m') l + sum_s e^(x_s - m')
    a' = e^(m - m') a + sum_s e^(x_s - m') v_s

and ends with y = a / l and z = m + log l. The backward pass keeps y and z
beside the inputs, and makes p_s = e^(x_s - z) again, a block at a time:

    dx_s = p_s (dy . v_s - dy . y)      dq = sum_s dx_s k_s / sqrt(K)
    dv_s = sum_q p_s dy                 dk_s = sum_q dx_s q / sqrt(K)

Memory is linear in L. A block of queries begins with the first key that one
of them sees, and ends with its own last one: all of L costs half of L^2, a
window of W keys L times W and a block. Where a query sees what comes later as
well, a block ends with the last key of the line: all of L costs L^2.

Shapes: NxBxHxC... are blocks, N of C queries each. Scores, softmax and sums
are float32, whatever is multiplied.
Source: Milakov and Gimelshein, "Online Normalizer Calculation for Softmax",
2018; Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory", 2021; Dao
et al., "FlashAttention", 2022.
"""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

einsum = functools.partial(
  jnp.einsum,
  precision=lax.Precision.HIGHEST,
  preferred_element_type=jnp.float32,
)


class Line(NamedTuple):
  """S steps in order of time; the queries are those of the last L.

  first_BxL is the first step that a query sees, and falls nowhere.
  """

  q_BxLxHxK: Any
  k_BxSxHxK: Any
  v_BxSxHxP: Any
  first_BxL: Any


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How many queries meet how many keys at a time."""

  queries: int
  keys: int  # with a top_k all that a block of queries can see
  top_k: int = 0
  causal: bool = True  # a query sees no key after itself


class _Block(NamedTuple):
  """C queries, the first key that each sees, and the keys to go over."""

  q_BxHxCxK: Any
  first_BxC: Any
  begin: Any  # the first key that one of them sees
  turns: Any  # how many blocks of keys there are from there
  query: Any  # where the first of them stands on the line


def keep_top(x, count):
  """-inf for scores below the `count`-th of their row; 0 keeps all.

  What equals the `count`-th stays as well: the order of keys is of no account.
  """
  if not 0 < count < x.shape[-1]:
    return x
  return jnp.where(x >= _ranked(lax.stop_gradient(x), count), x, -jnp.inf)


def _ranked(x, count):
  """The `count`-th largest number of each row, exactly, the last axis 1.

  Found bit by bit, by counting: a CPU sorts a row in three times the time.
  """

  def swap(bits):  # as integers, negative floats stand in the wrong order
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

  def narrow(n, least):
    tried = least + jnp.left_shift(jnp.int32(1), 31 - n)
    enough = jnp.sum(order >= tried, -1, keepdims=True) >= count
    return jnp.where(enough, tried, least)

  order = swap(lax.bitcast_convert_type(x, jnp.int32))
  least = jnp.full((*x.shape[:-1], 1), jnp.iinfo(jnp.int32).min, jnp.int32)
  least = lax.fori_loop(0, 32, narrow, least)
  return lax.bitcast_convert_type(swap(least), jnp.float32)


def forward(line, sizes):
  """Returns (y_BxLxHxP in v's dtype, z_NxBxHxC for `backward`)."""
  keys, values = _by_head(line.k_BxSxHxK), _by_head(line.v_BxSxHxP)
  lowest = float(jnp.finfo(jnp.float32).min)  # -inf would make 0 * inf

  def run(_, block):
    def visit(turn, sums):
      top, total, mean = sums
      _, _, v, x = _meet(block, turn, keys, values, sizes)
      new = jnp.maximum(top, jnp.max(x, -1))
      p, scale = jnp.exp(x - new[..., None]), jnp.exp(top - new)
      add = einsum('bhcs,bhsp->bhcp', p.astype(v.dtype), v)
      mean = mean * scale[..., None] + add
      return new, total * scale + jnp.sum(p, -1), mean

    shape = block.q_BxHxCxK.shape[:3]
    sums = (
      jnp.full(shape, lowest),
      jnp.zeros(shape),
      jnp.zeros((*shape, values.shape[-1])),
    )
    top, total, mean = lax.fori_loop(0, block.turns, visit, sums)
    y = (mean / total[..., None]).astype(values.dtype)
    return (), (y, top + jnp.log(total))

  _, (y, z) = lax.scan(run, (), _cut(line, sizes))
  return _joined(y, line.q_BxLxHxK.shape[1]), z


def backward(line, sizes, kept, dy_BxLxHxP):
  """The gradients of (q, k, v); `kept` is what `forward` returned."""
  y_BxLxHxP, z = kept
  keys, values = _by_head(line.k_BxSxHxK), _by_head(line.v_BxSxHxP)
  both = (x.astype(jnp.float32) for x in (y_BxLxHxP, dy_BxLxHxP))
  met = jnp.sum(jnp.multiply(*both), -1, keepdims=True)
  root = line.q_BxLxHxK.shape[-1] ** -0.5

  def run(sums, given):
    block, z, met, dy = given
    q = block.q_BxHxCxK

    def visit(turn, sums):
      dq, dk, dv = sums
      begin, k, v, x = _meet(block, turn, keys, values, sizes)
      p = jnp.exp(x - z[..., None])
      dx = p * (einsum('bhcp,bhsp->bhcs', dy, v) - met) * root
      dq = dq + einsum('bhcs,bhsk->bhck', dx.astype(k.dtype), k)
      more = einsum('bhcs,bhck->bhsk', dx.astype(q.dtype), q)
      dk = _add(dk, more, begin)
      more = einsum('bhcs,bhcp->bhsp', p.astype(dy.dtype), dy)
      return dq, dk, _add(dv, more, begin)

    dq = jnp.zeros(q.shape)
    dq, *sums = lax.fori_loop(0, block.turns, visit, (dq, *sums))
    return tuple(sums), dq.astype(q.dtype)

  zeros = tuple(jnp.zeros(x.shape) for x in (keys, values))
  given = _cut(line, sizes), z, *(_blocks(x, sizes) for x in (met, dy_BxLxHxP))
  (dk, dv), dq = lax.scan(run, zeros, given)
  return (
    _joined(dq, line.q_BxLxHxK.shape[1]),
    dk.swapaxes(1, 2).astype(keys.dtype),
    dv.swapaxes(1, 2).astype(values.dtype),
  )


def _by_head(x_BxSxHxK):
  """A head's rows lie together: a slice of them is one piece of memory."""
  return x_BxSxHxK.swapaxes(1, 2)


def _blocks(x_BxLxHxK, sizes):
  """NxBxHxCxK, the last block filled up with zeros."""
  B, L, H, K = x_BxLxHxK.shape
  rest = -L % sizes.queries
  x = jnp.pad(x_BxLxHxK, [(0, 0), (0, rest), (0, 0), (0, 0)])
  return x.reshape(B, -1, sizes.queries, H, K).transpose(1, 0, 3, 2, 4)


def _joined(x_NxBxHxCxK, length):
  """The inverse of `_blocks`."""
  N, B, H, C, K = x_NxBxHxCxK.shape
  x = x_NxBxHxCxK.transpose(1, 0, 3, 2, 4)
  return x.reshape(B, N * C, H, K)[:, :length]


def _cut(line, sizes):
  """_Block with N in front of each of its arrays."""
  length, total = line.q_BxLxHxK.shape[1], line.k_BxSxHxK.shape[1]
  rest = -length % sizes.queries
  first = jnp.pad(line.first_BxL, [(0, 0), (0, rest)], mode='edge')
  first = first.reshape(len(first), -1, sizes.queries).swapaxes(0, 1)
  query = total - length + jnp.arange(len(first)) * sizes.queries
  begin = jnp.min(first[:, :, 0], 1)
  end = jnp.minimum(query + sizes.queries, total) if sizes.causal else total
  turns = (end - begin + sizes.keys - 1) // sizes.keys
  return _Block(_blocks(line.q_BxLxHxK, sizes), first, begin, turns, query)


def _meet(block, turn, keys, values, sizes):
  """Where a block of keys begins, its k and v, and the queries' scores."""
  after = block.begin + turn * sizes.keys
  # The last block may reach back into the one before it, and sees none of it.
  begin = jnp.minimum(after, keys.shape[2] - sizes.keys)
  k, v = (_slice(x, begin, sizes.keys) for x in (keys, values))
  q = block.q_BxHxCxK
  query = (block.query + jnp.arange(q.shape[2]))[None, :, None]
  key = (begin + jnp.arange(sizes.keys))[None, None]
  first = jnp.maximum(block.first_BxC, after)[..., None]
  seen = key >= first
  if sizes.causal:
    seen &= key <= query
  x = einsum('bhck,bhsk->bhcs', q, k) * q.shape[-1] ** -0.5
  x = jnp.where(seen[:, None], x, -jnp.inf)
  return begin, k, v, keep_top(x, sizes.top_k)


def _slice(x, begin, size):
  return lax.dynamic_slice_in_dim(x, begin, size, 2)


def _add(total, x, begin):
  x = x + _slice(total, begin, x.shape[2])
  return lax.dynamic_update_slice_in_dim(total, x, begin, 2)
