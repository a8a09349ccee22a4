"""The state of windowed attention: a ring of the last W keys and values.

Step i of a document is in slot i mod W. A step writes one slot and moves
nothing: it costs the same at any position. H here is the number of heads of
keys and values, which may be fewer than those of queries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Cache(NamedTuple):
  """The state, float32.

  steps_B counts a document's steps up to W, then cycles from W to 2W - 1.
  """

  k_BxWxHxK: jax.Array
  v_BxWxHxP: jax.Array
  steps_B: jax.Array


def init_cache(
  B: int, window: int, heads: int, key_width: int, value_width: int
) -> Cache:
  """Returns an empty cache.

  Raises:
    ValueError: a window below 1.
  """
  if window < 1:
    raise ValueError(f'window={window}: give 1 or more')
  return Cache(
    jnp.zeros((B, window, heads, key_width)),
    jnp.zeros((B, window, heads, value_width)),
    jnp.zeros(B),
  )


def ages(steps_B: jax.Array, window: int) -> jax.Array:
  """Returns how many steps before the next one each slot's is, BxW, 1 to W."""
  return (steps_B[:, None] - 1 - jnp.arange(window)[None]) % window + 1


def in_order(x_BxWxHxK: jax.Array, steps_B: jax.Array) -> jax.Array:
  """Returns the slots from the oldest to the newest; the first may be empty."""
  window = x_BxWxHxK.shape[1]
  slot = (steps_B[:, None] + jnp.arange(window)[None]) % window
  return jnp.take_along_axis(x_BxWxHxK, slot[..., None, None], 1)


def from_order(
  k_BxWxHxK: jax.Array, v_BxWxHxP: jax.Array, steps_B: jax.Array
) -> Cache:
  """Returns the cache after `steps_B` steps, given the last W in order.

  With fewer than W steps the first slots of k and v may hold anything.
  """
  window = k_BxWxHxK.shape[1]
  age = ages(steps_B, window)
  exists = age <= steps_B[:, None]

  def lay(x):
    x = jnp.take_along_axis(x, (window - age)[..., None, None], 1)
    return jnp.where(exists[..., None, None], x, 0.0)

  return Cache(lay(k_BxWxHxK), lay(v_BxWxHxP), _wrapped(steps_B, window))


def write_one(
  cache: Cache, steps_B: jax.Array, k_Bx1xHxK: jax.Array, v_Bx1xHxP: jax.Array
) -> Cache:
  """Returns the cache after one more step."""
  window = cache.k_BxWxHxK.shape[1]
  slot = jnp.arange(steps_B.shape[0]), steps_B % window
  return Cache(
    cache.k_BxWxHxK.at[slot].set(k_Bx1xHxK[:, 0].astype(jnp.float32)),
    cache.v_BxWxHxP.at[slot].set(v_Bx1xHxP[:, 0].astype(jnp.float32)),
    _wrapped(steps_B + 1, window),
  )


def write(
  cache: Cache,
  steps_B: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  starts_BxL: jax.Array | None = None,
) -> Cache:
  """Returns the cache after L more steps, of which it holds the last W.

  `starts_BxL`, nonzero where a document begins, forgets all steps before it.
  """
  window, length = cache.k_BxWxHxK.shape[1], k_BxLxHxK.shape[1]
  count = steps_B + length
  if starts_BxL is not None:
    since_start = jnp.argmax(starts_BxL[:, ::-1] != 0, 1) + 1
    count = jnp.where(jnp.any(starts_BxL != 0, 1), since_start, count)
  age = ages(count, window)
  exists, new = age <= count[:, None], age <= length
  source = jnp.clip(length - age, 0)

  def merge(old, x):
    x = x.astype(jnp.float32)
    x = jnp.take_along_axis(x, source[..., None, None], 1)
    kept = jnp.where(new[..., None, None], x, old)
    return jnp.where(exists[..., None, None], kept, 0.0)

  return Cache(
    merge(cache.k_BxWxHxK, k_BxLxHxK),
    merge(cache.v_BxWxHxP, v_BxLxHxP),
    _wrapped(count, window),
  )


def _wrapped(steps_B, window):
  cycled = window + steps_B % window
  return jnp.where(steps_B < window, steps_B, cycled).astype(jnp.float32)
