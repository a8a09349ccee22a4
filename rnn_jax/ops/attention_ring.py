"""The state of windowed attention: a ring of the last W keys and values.

A document's step i lies in slot i mod W. A step writes one slot and moves
nothing, and costs the same at any position.
"""

from typing import Any
from typing import NamedTuple

import jax.numpy as jnp


class Cache(NamedTuple):
  """The state, float32.

  steps_B counts a document's steps up to W, then turns between W and 2W - 1.
  """

  k_BxWxHxK: Any
  v_BxWxHxP: Any
  steps_B: Any


def init_cache(B, window, heads, key_width, value_width):
  """A cache that holds nothing.

  Raises:
    ValueError: a window of no steps.
  """
  if window < 1:
    raise ValueError(f'window={window}: give 1 or more')
  return Cache(
    jnp.zeros((B, window, heads, key_width)),
    jnp.zeros((B, window, heads, value_width)),
    jnp.zeros(B),
  )


def ages(steps_B, window):
  """BxW: how many steps before the next one each slot's is, from 1 to W."""
  return (steps_B[:, None] - 1 - jnp.arange(window)[None]) % window + 1


def in_order(x_BxWxHxK, steps_B):
  """The slots from the oldest to the newest; those in front may be empty."""
  window = x_BxWxHxK.shape[1]
  slot = (steps_B[:, None] + jnp.arange(window)[None]) % window
  return jnp.take_along_axis(x_BxWxHxK, slot[..., None, None], 1)


def from_order(k_BxWxHxK, v_BxWxHxP, steps_B):
  """The cache behind `steps_B` steps, of the last W from oldest to newest.

  Those in front that there were not may be anything.
  """
  window = k_BxWxHxK.shape[1]
  age = ages(steps_B, window)
  exists = age <= steps_B[:, None]

  def lay(x):
    x = jnp.take_along_axis(x, (window - age)[..., None, None], 1)
    return jnp.where(exists[..., None, None], x, 0.0)

  return Cache(lay(k_BxWxHxK), lay(v_BxWxHxP), _wrapped(steps_B, window))


def write_one(cache, steps_B, k_Bx1xHxK, v_Bx1xHxP):
  """The cache behind one more step."""
  window = cache.k_BxWxHxK.shape[1]
  slot = jnp.arange(len(steps_B)), steps_B % window
  return Cache(
    cache.k_BxWxHxK.at[slot].set(k_Bx1xHxK[:, 0].astype(jnp.float32)),
    cache.v_BxWxHxP.at[slot].set(v_Bx1xHxP[:, 0].astype(jnp.float32)),
    _wrapped(steps_B + 1, window),
  )


def write(cache, steps_B, k_BxLxHxK, v_BxLxHxP, starts_BxL=None):
  """The cache behind L more steps, of which the last W stay."""
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
  turning = window + steps_B % window
  return jnp.where(steps_B < window, steps_B, turning).astype(jnp.float32)
