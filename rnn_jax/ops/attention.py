"""Causal softmax attention over a window, with a state.

    y_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s        t - W <= s <= t

Shapes: q, k BxLxHxK; v, y BxLxHxP. Each query sees itself and the W keys before
it, of its own document; W >= L is attention to all. The state is a ring of the
last W keys and values: a step writes one slot and moves nothing, and costs the
same at any position. Positions are rotary (`ops.rotary`) where `base` is not 0;
the ring holds keys as they came, and turns them by their age when they are
read, so that no number grows with the position.

Many steps run in blocks of queries, each against just the keys that it can see.
The backward pass keeps the inputs alone and makes a block's scores again, so
that memory is linear in L. Time is L (W + block), L^2 where W >= L.

Operands are multiplied in the inputs' format (the ring's are rounded to it);
scores, softmax and all sums are float32.
Source: Vaswani et al., "Attention Is All You Need", 2017; blocks: Rabe and
Staats, "Self-attention Does Not Need O(n^2) Memory", 2021.
"""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax import shapes
from rnn_jax.ops import rotary

BLOCK = 128  # queries at a time


class Cache(NamedTuple):
  """The state, float32. A document's step i lies in slot i mod W.

  steps_B counts a document's steps up to W, then turns between W and 2W - 1.
  """

  k_BxWxHxK: Any
  v_BxWxHxP: Any
  steps_B: Any


@dataclasses.dataclass(frozen=True)
class _Options:
  """What does not change from block to block."""

  window: int
  block: int
  base: float


def init_cache(B, window, heads, key_width, value_width):
  """A cache that holds nothing."""
  return Cache(
    jnp.zeros((B, window, heads, key_width)),
    jnp.zeros((B, window, heads, value_width)),
    jnp.zeros(B),
  )


def attend(
  cache, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, *, starts_BxL=None, base=0.0, block=0
):
  """Runs L >= 1 steps behind those in the cache.

  Args:
    cache: Cache of the steps before; its size is the window.
    q_BxLxHxK: what is looked for.
    k_BxLxHxK: what it is compared with.
    v_BxLxHxP: what is found there.
    starts_BxL: nonzero where a document begins, which sees nothing before.
    base: of the rotary angles; 0: no positions.
    block: queries at a time; 0: BLOCK. The result does not depend on it.

  Returns:
    (cache, y_BxLxHxP in v's dtype).

  Raises:
    ValueError: shapes disagree, an odd K with rotary positions, or L = 0.
  """
  _check(cache, q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, base)
  if starts_BxL is not None and starts_BxL.shape != q_BxLxHxK.shape[:2]:
    raise ValueError(
      f'starts_BxL has shape {starts_BxL.shape}, not {q_BxLxHxK.shape[:2]}'
    )
  length, window = q_BxLxHxK.shape[1], cache.k_BxWxHxK.shape[1]
  options = _Options(window, min(block or BLOCK, length), base)
  steps = lax.stop_gradient(cache.steps_B).astype(jnp.int32)
  new = k_BxLxHxK, v_BxLxHxP
  if length == 1 and starts_BxL is None:
    y = _one(cache, steps, q_BxLxHxK, *new, options)
    return _write_one(cache, steps, *new), y
  number = jnp.zeros(q_BxLxHxK.shape[:2], jnp.int32)
  if starts_BxL is not None:
    number = jnp.cumsum(starts_BxL != 0, 1, dtype=jnp.int32)
  y = lax.cond(
    jnp.any(steps > 0),  # rows that begin here have no past to compute on
    lambda *x: _behind_the_past(*x, options=options),
    lambda cache, steps, *x: _in_blocks(*x, options=options),
    cache,
    steps,
    q_BxLxHxK,
    *new,
    number,
  )
  return _write(cache, steps, *new, starts_BxL), y


def _check(cache, q, k, v, base):
  shapes.check(
    k_BxWxHxK=cache.k_BxWxHxK,
    v_BxWxHxP=cache.v_BxWxHxP,
    q_BxLxHxK=q,
    k_BxLxHxK=k,
    v_BxLxHxP=v,
  )
  if not q.shape[1]:
    raise ValueError('q_BxLxHxK has L=0: give one step or more')
  if base and q.shape[-1] % 2:
    raise ValueError(f'K={q.shape[-1]}: rotary positions need an even one')


def _weigh(q, k, v, seen_BxQxS, positions, base):
  """Softmax attention of the queries to the keys that they see."""
  if base:
    q, k = (
      rotary.turn(x, at, base).astype(x.dtype)
      for x, at in zip((q, k), positions, strict=True)
    )
  scores = _einsum('bqhk,bshk->bhqs', q, k) * q.shape[-1] ** -0.5
  scores = jnp.where(seen_BxQxS[:, None], scores, -jnp.inf)
  share = jax.nn.softmax(scores, -1)
  return _einsum('bhqs,bshp->bqhp', share.astype(v.dtype), v).astype(v.dtype)


_einsum = functools.partial(
  jnp.einsum,
  precision=lax.Precision.HIGHEST,
  preferred_element_type=jnp.float32,
)


def _one(cache, steps_B, q, k, v, options):
  """y of one step; the ring is read as it lies."""
  slots = jnp.arange(options.window)[None]
  age = (steps_B[:, None] - 1 - slots) % options.window + 1
  seen = jnp.pad(age <= steps_B[:, None], [(0, 0), (0, 1)], constant_values=1)
  keys, values = (
    jnp.concatenate([old.astype(x.dtype), x], 1)
    for old, x in ((cache.k_BxWxHxK, k), (cache.v_BxWxHxP, v))
  )
  positions = jnp.zeros((1, 1)), jnp.pad(-age, [(0, 0), (0, 1)])
  return _weigh(q, keys, values, seen[:, None], positions, options.base)


def _write_one(cache, steps_B, k, v):
  window = cache.k_BxWxHxK.shape[1]
  slot = jnp.arange(len(steps_B)), steps_B % window
  return Cache(
    cache.k_BxWxHxK.at[slot].set(k[:, 0].astype(jnp.float32)),
    cache.v_BxWxHxP.at[slot].set(v[:, 0].astype(jnp.float32)),
    _wrapped(steps_B + 1, window),
  )


def _wrapped(steps_B, window):
  turning = window + steps_B % window
  return jnp.where(steps_B < window, steps_B, turning).astype(jnp.float32)


def _write(cache, steps_B, k, v, starts):
  """The cache behind L steps, of which the last W stay."""
  window, length = cache.k_BxWxHxK.shape[1], k.shape[1]
  count = steps_B + length
  if starts is not None:
    since_start = jnp.argmax(starts[:, ::-1] != 0, 1) + 1
    count = jnp.where(jnp.any(starts != 0, 1), since_start, count)
  age = (count[:, None] - 1 - jnp.arange(window)[None]) % window + 1
  exists, new = age <= count[:, None], age <= length
  source = jnp.clip(length - age, 0)

  def merge(old, x):
    x = x.astype(jnp.float32)
    x = jnp.take_along_axis(x, source[..., None, None], 1)
    kept = jnp.where(new[..., None, None], x, old)
    return jnp.where(exists[..., None, None], kept, 0.0)

  return Cache(
    merge(cache.k_BxWxHxK, k),
    merge(cache.v_BxWxHxP, v),
    _wrapped(count, window),
  )


def _behind_the_past(cache, steps_B, q, k, v, number, options):
  """Blocks over the ring, in order of time, and the steps behind it."""
  age = jnp.arange(options.window, 0, -1)[None]
  slot = ((steps_B[:, None] - age) % options.window)[..., None, None]
  past = jnp.where(age <= steps_B[:, None], 0, -1)  # -1: nobody's
  k, v = (
    jnp.concatenate([jnp.take_along_axis(x, slot, 1).astype(y.dtype), y], 1)
    for x, y in ((cache.k_BxWxHxK, k), (cache.v_BxWxHxP, v))
  )
  number = jnp.concatenate([past.astype(jnp.int32), number], 1)
  return _in_blocks(q, k, v, number, options)


def _in_blocks(q, k, v, number_BxS, options):
  """y of L queries; the keys may begin before them."""
  length = q.shape[1]
  rest = -length % options.block
  q, k, v = (jnp.pad(x, [(0, 0), (0, rest), (0, 0), (0, 0)]) for x in (q, k, v))
  number_BxS = jnp.pad(number_BxS, [(0, 0), (0, rest)], mode='edge')
  return _blocks(q, k, v, number_BxS, options)[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _blocks(q, k, v, number_BxS, options):
  def run(n):
    block = _cut(n, q, k, v, number_BxS, options)
    return _weigh(*block.arrays, *block.others)

  y = lax.map(run, jnp.arange(q.shape[1] // options.block))
  return y.swapaxes(0, 1).reshape(*q.shape[:3], -1)


def _forward(q, k, v, number_BxS, options):
  return _blocks(q, k, v, number_BxS, options), (q, k, v, number_BxS)


def _backward(options, kept, dy):
  # Sums go where a block's keys lie; autodiff would add up whole sequences.
  q, k, v, number_BxS = kept

  def run(sums, n):
    block = _cut(n, q, k, v, number_BxS, options)
    back = jax.vjp(lambda *x: _weigh(*x, *block.others), *block.arrays)[1]
    dq, *more = back(_slice(dy, n * options.block, options.block))
    sums = tuple(
      _add(total, x, block.begin) for total, x in zip(sums, more, strict=True)
    )
    return sums, dq

  zeros = tuple(jnp.zeros(x.shape, jnp.float32) for x in (k, v))
  sums, dq = lax.scan(run, zeros, jnp.arange(q.shape[1] // options.block))
  dq = dq.swapaxes(0, 1).reshape(q.shape)
  dk, dv = (x.astype(like.dtype) for x, like in zip(sums, (k, v), strict=True))
  return dq, dk, dv, None


_blocks.defvjp(_forward, _backward)


class _Block(NamedTuple):
  """A block's (q, k, v), what else `_weigh` takes, where its keys begin."""

  arrays: Any
  others: Any
  begin: Any


def _cut(n, q, k, v, number_BxS, options):
  window, size, total = options.window, options.block, k.shape[1]
  first = total - q.shape[1] + n * size  # the first query's place among keys
  width = min(window + size, total)
  begin = jnp.clip(first - window, 0, total - width)
  arrays = (
    _slice(q, n * size, size),
    _slice(k, begin, width),
    _slice(v, begin, width),
  )
  query = (first - begin + jnp.arange(size))[None]
  key = jnp.arange(width)[None]
  apart = query[:, :, None] - key[:, None]
  mine, theirs = (
    _slice(number_BxS, first, size),
    _slice(number_BxS, begin, width),
  )
  seen = (apart >= 0) & (apart <= window)
  seen = seen & (mine[:, :, None] == theirs[:, None])
  return _Block(arrays, (seen, (query, key), options.base), begin)


def _slice(x, begin, size):
  return lax.dynamic_slice_in_dim(x, begin, size, 1)


def _add(total, x, begin):
  x = x.astype(total.dtype) + _slice(total, begin, x.shape[1])
  return lax.dynamic_update_slice_in_dim(total, x, begin, 1)
