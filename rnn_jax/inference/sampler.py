"""Samples the next token of each row: the mathematics of sampling.py.

A row's options are arrays, so that one program samples all mixtures of them;
its static `kind` says which of them there may be.

Shapes: logits BxV; a row's options, keys and tokens B; the allowed tokens BxM,
M = V / 32 words whose bits are tokens, the lowest bit first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import sampling
from rnn_jax.ops import fixed_order

WORD = 32  # allowed tokens in a word of the mask
COLDEST = 1e-30  # a temperature that float32 can still divide by


class Memory(NamedTuple):
  """What penalties and biases read of each row."""

  prompt_BxV: jax.Array | np.ndarray  # whether the prompt has the token
  count_BxV: jax.Array | np.ndarray  # of the token among the new ones
  bias_BxV: jax.Array | np.ndarray

  def counting(
    self, token_B: jax.Array, times_B: jax.Array | int = 1
  ) -> 'Memory':
    """Returns it after a new token of each row."""
    each = jnp.arange(len(token_B)), token_B
    count_BxV = jnp.asarray(self.count_BxV).at[each].add(times_B)
    return self._replace(count_BxV=count_BxV)


def words(vocabulary: int) -> int:
  """Returns M, the words of a row's mask of allowed tokens."""
  return -(-vocabulary // WORD)


def remember(
  prompts: Sequence[np.ndarray], settings: sampling.Sampling, vocabulary: int
) -> Memory:
  """Returns what rows with these prompts remember at first, on the host."""
  shape = len(prompts), vocabulary
  prompt_BxV, bias_BxV = np.zeros(shape, bool), np.zeros(shape, np.float32)
  for row, ids in enumerate(prompts):
    prompt_BxV[row, ids] = True
  bias_BxV[:, [*settings.logit_bias]] = [*settings.logit_bias.values()]
  return Memory(prompt_BxV, np.zeros(shape, np.int32), bias_BxV)


def keys(rows: sampling.Rows) -> jax.Array:
  """Returns a PRNG key for each row, from its seed and its index."""

  def make(low, high, n):
    key = jax.random.key(low)
    key = jnp.where(high == 0, key, jax.random.fold_in(key, high))
    return jax.random.fold_in(key, n)

  return jax.vmap(make)(rows.seed_B, rows.seed_high_B, rows.index_B)


def adjust(
  logits_BxV: jax.Array,
  rows: sampling.Rows,
  position_B: jax.Array,
  memory: Memory | None = None,
  allowed_BxM: jax.Array | None = None,
) -> jax.Array:
  """Returns the logits to sample from: biases, penalties, allowed tokens.

  Args:
    logits_BxV: of the model.
    rows: their options.
    position_B: new tokens so far.
    memory: what biases and penalties read; None: no row has any.
    allowed_BxM: bits of the tokens that constrained rows may choose; None: no
      row is constrained.
  """
  early_B, penalized_B = _early(rows, position_B), _penalized(rows)
  some_B = adjusts(rows, position_B) & rows.active_B

  def adjusted():
    x = logits_BxV
    if memory is not None:
      x = jnp.where(rows.biased_B[:, None], x + memory.bias_BxV, x)
      x = jnp.where(penalized_B[:, None], _penalize(x, rows, memory), x)
    token_V = jnp.arange(x.shape[1])[None]
    at_boundary_BxV = token_V == rows.boundary_B[:, None]
    x = jnp.where(at_boundary_BxV & early_B[:, None], -jnp.inf, x)
    if allowed_BxM is None:
      return x
    refused_BxV = ~_bits(allowed_BxM, x.shape[1]) & rows.constrained_B[:, None]
    return jnp.where(refused_BxV, -jnp.inf, x)

  return jax.lax.cond(jnp.any(some_B), adjusted, lambda: logits_BxV)


def adjusts(rows: sampling.Rows, position_B: jax.Array) -> jax.Array:
  """Returns whether `adjust` changes a row's logits at a place."""
  adjusted_B = _early(rows, position_B) | _penalized(rows)
  return adjusted_B | rows.biased_B | rows.constrained_B


def _early(rows, position_B):
  return (rows.boundary_B >= 0) & (position_B < rows.least_B)


def _penalized(rows):
  penalized_B = (rows.presence_B != 0) | (rows.frequency_B != 0)
  return penalized_B | (rows.repetition_B != 1)


def _penalize(x, rows, memory):
  present_BxV = memory.count_BxV > 0
  repeats_BxV = present_BxV | memory.prompt_BxV
  r = rows.repetition_B[:, None]
  x = jnp.where(repeats_BxV, jnp.where(x > 0, x / r, x * r), x)
  x = x - rows.frequency_B[:, None] * memory.count_BxV
  return x - rows.presence_B[:, None] * present_BxV


def _bits(allowed_BxM, vocabulary):
  bit = jnp.arange(WORD, dtype=jnp.uint32)[None, None]
  bits_BxMxW = (allowed_BxM[:, :, None] >> bit) & 1
  return bits_BxMxW.reshape(len(allowed_BxM), -1)[:, :vocabulary] != 0


def choose(
  keys_B: jax.Array,
  logits_BxV: jax.Array,
  rows: sampling.Rows,
  kind: sampling.Kind,
) -> jax.Array:
  """Returns token_B, int32; a row depends only on its own key and logits.

  Ties between equal logits go to the lower id, in the top k and when greedy.
  """
  V = logits_BxV.shape[1]
  warm_B = (rows.temperature_B > 0) & rows.active_B
  sorted_B = jnp.where(rows.top_k_B > 0, jnp.minimum(rows.top_k_B, V), V)
  sorts_B = (rows.top_k_B > 0) | (rows.top_p_B < 1)
  width_B = jnp.where(sorts_B, sorted_B, sampling.ALL)
  width_B = jnp.where(warm_B, width_B, sampling.GREEDY)

  def sample(width):
    if width == sampling.GREEDY:
      return fixed_order.argmax(logits_BxV)
    return _draw_among(width, keys_B, logits_BxV, rows)

  if len(kind.widths) == 1:
    return sample(kind.widths[0])
  token_B, narrower = jnp.zeros(len(logits_BxV), jnp.int32), -2
  for width in kind.widths:
    wanted_B = (width_B > narrower) & (width_B <= width)
    narrower = width
    token_B = jax.lax.cond(
      jnp.any(wanted_B),
      lambda old_B, wanted_B=wanted_B, width=width: jnp.where(
        wanted_B, sample(width), old_B
      ),
      lambda old_B: old_B,
      token_B,
    )
  return token_B


def _draw_among(width, keys_B, logits_BxV, rows):
  """Samples from the `width` most likely tokens, or from ALL."""
  # With the maximum at 0, a low temperature gives -inf, never inf - inf.
  z = logits_BxV - jnp.max(logits_BxV, -1, keepdims=True)
  z = z / jnp.maximum(rows.temperature_B, COLDEST)[:, None]
  uniform_B = jax.vmap(jax.random.uniform)(keys_B)
  if width == sampling.ALL:
    return draw(uniform_B, _above(jnp.exp(z), rows))
  z_BxK, tokens_BxK = jax.lax.top_k(z, width)
  weights = jnp.exp(z_BxK)
  top_k = jnp.where(rows.top_k_B > 0, rows.top_k_B, z.shape[1])[:, None]
  weights = jnp.where(jnp.arange(width)[None] < top_k, weights, 0.0)
  weights = nucleus(weights, rows.top_p_B[:, None])
  chosen_B = draw(uniform_B, _above(weights, rows))
  return jnp.take_along_axis(tokens_BxK, chosen_B[:, None], -1)[:, 0]


def _above(weights, rows):
  """Zeroes what is below min_p; the largest weight is 1."""
  return jnp.where(weights >= rows.min_p_B[:, None], weights, 0.0)


def nucleus(falling_weights: jax.Array, top_p: jax.Array) -> jax.Array:
  """Zeroes the weights after those whose share of the sum reaches `top_p`.

  1 keeps all, whatever the sum is rounded to.
  """
  mass = jnp.cumsum(falling_weights, -1)
  mass_before = jnp.pad(mass[:, :-1], [(0, 0), (1, 0)])
  most = jnp.where(top_p < 1, top_p * mass[:, -1:], jnp.inf)
  return jnp.where(mass_before < most, falling_weights, 0.0)


def draw(uniform_B: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns the index whose share of the weights a number in [0, 1) hits.

  One random number per row; the Gumbel-max trick needs one per token.
  """
  ends = jnp.cumsum(weights, -1)
  # Rounded sums may decrease slightly: still never choose a weight of 0.
  ends = jnp.where(weights > 0, ends, -1.0)
  target = uniform_B * jnp.max(ends, -1)
  return jnp.argmax(ends > target[:, None], -1).astype(jnp.int32)


def logprobs(
  logits_BxV: jax.Array,
  token_B: jax.Array,
  rows: sampling.Rows,
  kind: sampling.Kind,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns (logprob_B, most likely tokens BxK, their log-probabilities BxK).

  They are the model's, whatever the sampling. K is that of the kind; they are
  zeros if no row wants any.
  """
  total_B = fixed_order.logsumexp(logits_BxV)
  chosen = jnp.take_along_axis(logits_BxV, token_B[:, None], -1)[:, 0]
  K = kind.alternatives

  def best():
    z_BxK, tokens_BxK = jax.lax.top_k(logits_BxV, K)
    return tokens_BxK, z_BxK - total_B[:, None]

  def none():
    shape = len(token_B), K
    return jnp.zeros(shape, jnp.int32), jnp.zeros(shape)

  if not K:
    return chosen - total_B, *none()
  some = jnp.any((rows.alternatives_B > 0) & rows.active_B)
  return chosen - total_B, *jax.lax.cond(some, best, none)
