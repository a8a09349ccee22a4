"""Softmax attention in blocks, forward and backward.

A block of queries visits blocks of keys with a running softmax:

    m' = max(m, max_s x_s)                         x_s = q . k_s / sqrt(K)
    l' = e^(m - m') l + sum_s e^(x_s - m')
    a' = e^(m - m') a + sum_s e^(x_s - m') v_s

and ends with y = a / l and z = m + log l. The backward pass stores y and z
beside the inputs, and recomputes p_s = e^(x_s - z) block by block:

    dx_s = p_s (dy . v_s - dy . y)      dq = sum_s dx_s k_s / sqrt(K)
    dv_s = sum_q p_s dy                 dk_s = sum_q dx_s q / sqrt(K)

Memory is linear in L. A block of queries begins with the first key that one of
them sees, and ends with its own last one: full attention costs L^2 / 2, a
window of W keys costs L (W + a block). Where queries see later keys as well, a
block ends with the last key: that costs L^2.

Shapes: NxBxHxC... are N blocks of C queries each. Scores, softmax and sums are
float32, whatever the operands' dtype.
Source: Milakov and Gimelshein, "Online Normalizer Calculation for Softmax",
2018; Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory", 2021; Dao
et al., "FlashAttention", 2022.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

einsum = functools.partial(
  jnp.einsum,
  precision=lax.Precision.HIGHEST,
  preferred_element_type=jnp.float32,
)


class Line(NamedTuple):
  """S steps in order of time, and the queries of the last L of them.

  first_BxL is the first step that a query sees; it never decreases over time.
  """

  q_BxLxHxK: jax.Array
  k_BxSxHxK: jax.Array
  v_BxSxHxP: jax.Array
  first_BxL: jax.Array


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How many queries and keys a block has."""

  queries: int
  keys: int  # with a top_k, all that a block of queries sees
  top_k: int = 0
  causal: bool = True  # a query sees no key after itself


class _Block(NamedTuple):
  """C queries, the first key that each sees, and the keys to visit."""

  q_BxHxCxK: jax.Array
  first_BxC: jax.Array
  begin: jax.Array  # the first key that one of them sees
  visits: jax.Array  # how many blocks of keys follow from there
  query: jax.Array  # the index of the first query on the line


def keep_top(x: jax.Array, count: int) -> jax.Array:
  """Returns scores with -inf below the `count`-th highest of their row.

  Ties with the `count`-th stay as well, so that the order of keys doesn't
  matter. A count of 0 keeps all.
  """
  if not 0 < count < x.shape[-1]:
    return x
  return jnp.where(x >= _kth_largest(lax.stop_gradient(x), count), x, -jnp.inf)


def _kth_largest(x, count):
  """Returns the `count`-th largest number of each row, exactly; last axis 1.

  A bisection over its bits: sorting a row takes a CPU three times as long.
  """

  def swap(bits):  # as integers, negative floats are in reverse order
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

  def narrow(n, bound):
    trial = bound + jnp.left_shift(jnp.int32(1), 31 - n)
    enough = jnp.sum(order >= trial, -1, keepdims=True) >= count
    return jnp.where(enough, trial, bound)

  order = swap(lax.bitcast_convert_type(x, jnp.int32))
  bound = jnp.full((*x.shape[:-1], 1), jnp.iinfo(jnp.int32).min, jnp.int32)
  bound = lax.fori_loop(0, 32, narrow, bound)
  return lax.bitcast_convert_type(swap(bound), jnp.float32)


def forward(line: Line, sizes: Sizes) -> tuple[jax.Array, jax.Array]:
  """Returns (y_BxLxHxP in v's dtype, z_NxBxHxC for `backward`)."""
  keys, values = _by_head(line.k_BxSxHxK), _by_head(line.v_BxSxHxP)
  lowest = float(jnp.finfo(jnp.float32).min)  # -inf would make 0 * inf

  def run(_, block):
    def visit(number, sums):
      top, total, mean = sums
      _, _, v, x = _scores(block, number, keys, values, sizes)
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
    top, total, mean = lax.fori_loop(0, block.visits, visit, sums)
    y = (mean / total[..., None]).astype(values.dtype)
    return (), (y, top + jnp.log(total))

  _, (y, z) = lax.scan(run, (), _query_blocks(line, sizes))
  return _joined(y, line.q_BxLxHxK.shape[1]), z


def backward(
  line: Line,
  sizes: Sizes,
  kept: tuple[jax.Array, jax.Array],
  dy_BxLxHxP: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the gradients of (q, k, v).

  Args:
    line: as in `forward`.
    sizes: as in `forward`.
    kept: (y, z), the results of `forward`.
    dy_BxLxHxP: the gradient of y.
  """
  y_BxLxHxP, z = kept
  keys, values = _by_head(line.k_BxSxHxK), _by_head(line.v_BxSxHxP)
  both = (x.astype(jnp.float32) for x in (y_BxLxHxP, dy_BxLxHxP))
  dy_y = jnp.sum(jnp.multiply(*both), -1, keepdims=True)
  scale = line.q_BxLxHxK.shape[-1] ** -0.5

  def run(sums, inputs):
    block, z, dy_y, dy = inputs
    q = block.q_BxHxCxK

    def visit(number, sums):
      dq, dk, dv = sums
      begin, k, v, x = _scores(block, number, keys, values, sizes)
      p = jnp.exp(x - z[..., None])
      dx = p * (einsum('bhcp,bhsp->bhcs', dy, v) - dy_y) * scale
      dq = dq + einsum('bhcs,bhsk->bhck', dx.astype(k.dtype), k)
      dk_block = einsum('bhcs,bhck->bhsk', dx.astype(q.dtype), q)
      dk = _add(dk, dk_block, begin)
      dv_block = einsum('bhcs,bhcp->bhsp', p.astype(dy.dtype), dy)
      return dq, dk, _add(dv, dv_block, begin)

    dq = jnp.zeros(q.shape)
    dq, *sums = lax.fori_loop(0, block.visits, visit, (dq, *sums))
    return tuple(sums), dq.astype(q.dtype)

  zeros = tuple(jnp.zeros(x.shape) for x in (keys, values))
  blocks = _query_blocks(line, sizes), z
  blocks = *blocks, *(_blocks(x, sizes) for x in (dy_y, dy_BxLxHxP))
  (dk, dv), dq = lax.scan(run, zeros, blocks)
  return (
    _joined(dq, line.q_BxLxHxK.shape[1]),
    dk.swapaxes(1, 2).astype(keys.dtype),
    dv.swapaxes(1, 2).astype(values.dtype),
  )


def _by_head(x_BxSxHxK):
  """Returns BxHxSxK: a slice of a head's rows is contiguous in memory."""
  return x_BxSxHxK.swapaxes(1, 2)


def _blocks(x_BxLxHxK, sizes):
  """Returns NxBxHxCxK, the last block padded with zeros."""
  B, L, H, K = x_BxLxHxK.shape
  rest = -L % sizes.queries
  x = jnp.pad(x_BxLxHxK, [(0, 0), (0, rest), (0, 0), (0, 0)])
  return x.reshape(B, -1, sizes.queries, H, K).transpose(1, 0, 3, 2, 4)


def _joined(x_NxBxHxCxK, length):
  """The inverse of `_blocks`."""
  N, B, H, C, K = x_NxBxHxCxK.shape
  x = x_NxBxHxCxK.transpose(1, 0, 3, 2, 4)
  return x.reshape(B, N * C, H, K)[:, :length]


def _query_blocks(line, sizes):
  """Returns a _Block with N in front of each of its arrays."""
  length, total = line.q_BxLxHxK.shape[1], line.k_BxSxHxK.shape[1]
  rest = -length % sizes.queries
  first = jnp.pad(line.first_BxL, [(0, 0), (0, rest)], mode='edge')
  first = first.reshape(len(first), -1, sizes.queries).swapaxes(0, 1)
  query = total - length + jnp.arange(len(first)) * sizes.queries
  begin = jnp.min(first[:, :, 0], 1)
  end = jnp.minimum(query + sizes.queries, total) if sizes.causal else total
  visits = (end - begin + sizes.keys - 1) // sizes.keys
  return _Block(_blocks(line.q_BxLxHxK, sizes), first, begin, visits, query)


def _scores(block, number, keys, values, sizes):
  """Returns the first key of a block of keys, its k and v, and the scores."""
  after = block.begin + number * sizes.keys
  # The last block may overlap the one before it, and masks the overlap.
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
