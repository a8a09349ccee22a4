"""Attention of a recurrent output over earlier outputs, with a window.

    c_t = sum_s softmax_s(query_t . y_s) y_s        t - W < s <= t

Shapes: query and y are BxLxE; the state holds the last W-1 outputs and which
of them exist, so that a step costs the same at any position; W >= L is
attention over the whole past. Outputs of another document are not seen.
Source: Luong et al., "Effective Approaches to Attention-based Neural Machine
Translation", 2015.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Cache(NamedTuple):
  """The outputs before the first step, and 1 where there is one."""

  y_BxWxE: Any
  valid_BxW: Any


def init_cache(B, window, width):
  """A cache that holds nothing, for windows of `window` outputs."""
  return Cache(
    jnp.zeros((B, window - 1, width), jnp.float32),
    jnp.zeros((B, window - 1), jnp.float32),
  )


def attend(cache, query_BxLxE, y_BxLxE, starts_BxL=None):
  """Returns (cache, context_BxLxE); L = 1 is one step."""
  kept, length = cache.valid_BxW.shape[1], y_BxLxE.shape[1]
  y = jnp.concatenate([cache.y_BxWxE, y_BxLxE.astype(jnp.float32)], 1)
  ones = jnp.ones(y_BxLxE.shape[:2], jnp.float32)
  valid = jnp.concatenate([cache.valid_BxW, ones], 1)
  t = kept + jnp.arange(length)[:, None]
  s = jnp.arange(kept + length)[None]
  seen = ((s <= t) & (s >= t - kept))[None] & (valid[:, None] > 0)
  if starts_BxL is not None:
    document = jnp.cumsum(starts_BxL != 0, 1)
    document = jnp.pad(document, [(0, 0), (kept, 0)])
    seen &= document[:, kept:, None] == document[:, None]
    valid = valid * (document == document[:, -1:])
  scores = jnp.einsum(
    'ble,bse->bls',
    query_BxLxE.astype(jnp.float32),
    y,
    precision=jax.lax.Precision.HIGHEST,
  )
  share = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
  context = jnp.einsum(
    'bls,bse->ble', share, y, precision=jax.lax.Precision.HIGHEST
  )
  cache = Cache(y[:, length:], valid[:, length:])
  return cache, context.astype(y_BxLxE.dtype)
