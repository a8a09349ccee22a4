"""Samples the next token from its logits.

    p = softmax(logits / temperature), restricted to the top_k likeliest
    tokens, and of those to the nucleus: the smallest set of likeliest tokens
    whose mass reaches top_p, at least one.

Shapes: logits BxV, keys and tokens B. Temperature 0 takes the likeliest.
Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors

LEAST_WIDTH = 16  # tokens that a program with top_k sorts at least
COLDEST = 1e-30  # a temperature that float32 can still divide by


class Numbers(NamedTuple):
  """Sampling's values as arguments of a program, scalars."""

  temperature: jax.Array | np.ndarray | float
  top_k: jax.Array | np.ndarray | int
  top_p: jax.Array | np.ndarray | float


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

  def kind(self) -> 'Sampling':
    """Returns what all settings have whose tokens one program can sample."""
    if not self.temperature:
      return Sampling(0.0)
    width = max(LEAST_WIDTH, 1 << (self.top_k - 1).bit_length())
    return Sampling(
      top_k=width if self.top_k else 0, top_p=0.5 if self.top_p < 1 else 1.0
    )

  def numbers(self) -> Numbers:
    """Returns the arguments that go with a program of its `kind`."""
    top_k = min(self.top_k, np.iinfo(np.int32).max)
    values = np.float32(self.temperature), np.int32(top_k)
    return Numbers(*values, np.float32(self.top_p))


def sample(
  keys_B: jax.Array,
  logits_BxV: jax.Array,
  settings: Sampling,
  numbers: Numbers | None = None,
) -> jax.Array:
  """Returns token_B in int32. A row depends only on its own key and logits.

  Ties between equal logits go to the lower id, in the top k and when greedy.

  Args:
    keys_B: a PRNG key per row.
    logits_BxV: of the next token.
    settings: how to choose it.
    numbers: of other settings of the same `kind`, which is then all that counts
      of `settings`; None: those of `settings`.
  """
  if settings.temperature == 0:
    return jnp.argmax(logits_BxV, -1).astype(jnp.int32)
  temperature, top_k, top_p = numbers or settings.numbers()
  # With the maximum at 0, a low temperature gives -inf, never inf - inf.
  logits = logits_BxV - jnp.max(logits_BxV, -1, keepdims=True)
  logits = logits / jnp.maximum(temperature, COLDEST)
  uniform_B = jax.vmap(jax.random.uniform)(keys_B)
  vocabulary = logits.shape[-1]
  k = min(settings.top_k or vocabulary, vocabulary)
  if not settings.top_k and settings.top_p == 1:
    return draw(uniform_B, jnp.exp(logits))
  logits, tokens = jax.lax.top_k(logits, k)
  weights = jnp.exp(logits)
  if settings.top_k:
    weights = jnp.where(jnp.arange(k) < top_k, weights, 0.0)
  if settings.top_p < 1:
    weights = nucleus(weights, top_p)
  chosen = draw(uniform_B, weights)
  return jnp.take_along_axis(tokens, chosen[:, None], -1)[:, 0]


def nucleus(
  falling_weights: jax.Array, top_p: jax.Array | np.ndarray | float
) -> jax.Array:
  """Zeroes the weights after those whose share of the sum reaches `top_p`."""
  mass = jnp.cumsum(falling_weights, -1)
  mass_before = jnp.pad(mass[:, :-1], [(0, 0), (1, 0)])
  return jnp.where(mass_before < top_p * mass[:, -1:], falling_weights, 0.0)


def draw(uniform_B: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns the index whose share of the weights a number in [0, 1) hits.

  One random number per row; the Gumbel-max trick needs one per token.
  """
  ends = jnp.cumsum(weights, -1)
  # Rounded sums may decrease slightly: still never choose a weight of 0.
  ends = jnp.where(weights > 0, ends, -1.0)
  target = uniform_B * jnp.max(ends, -1)
  return jnp.argmax(ends > target[:, None], -1).astype(jnp.int32)
