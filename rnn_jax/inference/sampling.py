"""Samples the next token from its logits.

    p = softmax(logits / temperature), restricted to the top_k likeliest
    tokens, and of those to the nucleus: the smallest set of likeliest tokens
    whose mass reaches top_p, at least one.

Shapes: logits BxV, keys and tokens B. Temperature 0 takes the likeliest.
Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from rnn_jax import errors

COLDEST = 1e-30  # a temperature that float32 can still divide by


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How a token is chosen.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  temperature: float = 1.0  # 0: the likeliest token
  top_k: int = 0  # 0: all tokens
  top_p: float = 1.0  # in (0, 1]

  def __post_init__(self):
    if not 0 <= self.temperature < math.inf:
      errors.refuse(
        'temperature', self.temperature, 'give a finite number >= 0'
      )
    if self.top_k < 0:
      errors.refuse('top_k', self.top_k, 'give 1 or more, or 0 for all tokens')
    if not 0 < self.top_p <= 1:
      errors.refuse('top_p', self.top_p, 'give a number in (0, 1]')


def sample(
  keys_B: jax.Array, logits_BxV: jax.Array, settings: Sampling
) -> jax.Array:
  """Returns token_B in int32. A row depends only on its own key and logits.

  Ties between equal logits go to the lower id, in the top k and when greedy.
  """
  if settings.temperature == 0:
    return jnp.argmax(logits_BxV, -1).astype(jnp.int32)
  # With the maximum at 0, a low temperature gives -inf, never inf - inf.
  logits = logits_BxV - jnp.max(logits_BxV, -1, keepdims=True)
  logits = logits / max(settings.temperature, COLDEST)
  uniform_B = jax.vmap(jax.random.uniform)(keys_B)
  vocabulary = logits.shape[-1]
  k = min(settings.top_k or vocabulary, vocabulary)
  if k == vocabulary and settings.top_p == 1:
    return _draw(uniform_B, jnp.exp(logits))
  logits, tokens = jax.lax.top_k(logits, k)
  chosen = _draw(uniform_B, _nucleus(jnp.exp(logits), settings.top_p))
  return jnp.take_along_axis(tokens, chosen[:, None], -1)[:, 0]


def _nucleus(falling_weights, top_p):
  """Zeroes the weights after those whose share of the sum reaches `top_p`."""
  if top_p == 1:
    return falling_weights
  mass = jnp.cumsum(falling_weights, -1)
  mass_before = jnp.pad(mass[:, :-1], [(0, 0), (1, 0)])
  return jnp.where(mass_before < top_p * mass[:, -1:], falling_weights, 0.0)


def _draw(uniform_B, weights):
  """Returns the index whose share of the weights a number in [0, 1) hits.

  One random number per row; the Gumbel-max trick needs one per token.
  """
  ends = jnp.cumsum(weights, -1)
  # Rounded sums may decrease slightly: still never choose a weight of 0.
  ends = jnp.where(weights > 0, ends, -1.0)
  target = uniform_B * jnp.max(ends, -1)
  return jnp.argmax(ends > target[:, None], -1).astype(jnp.int32)
