"""Samples the next token of each row with the row's own options.

    z = (logits + bias, penalties, minimum length, allowed tokens) of the row
    p = softmax(z / temperature), restricted to the top_k likeliest tokens, of
        these to the nucleus of mass top_p, and of these to p >= min_p max(p)

The first lines are those of inference/sampling.py, and so is the token. A row's
options are arrays, so that one program samples all mixtures of them. What few
rows need is in a branch that runs if any row needs it; a row that doesn't need
it gets the same bits either way, because its own numbers never pass through
the branch.

Penalties: a repetition penalty r divides positive logits of tokens that the
prompt or the text has, and multiplies negative ones (Keskar et al., "CTRL",
2019); presence and frequency penalties are subtracted once, or once for each
occurrence among the new tokens. min_p: Nguyen et al., "Turning Up the Heat:
Min-p Sampling", 2024.

Shapes: logits BxV; a row's options B; the allowed tokens BxM, M = V / 32 words
whose bits are tokens, the lowest bit first.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import sampling

WIDTH = 64  # tokens that are sorted for a top_k up to this; all for others
ALTERNATIVES = 20  # the most likeliest tokens that a step reports
WORD = 32  # allowed tokens in a word of the mask
STRONGEST = 100.0  # of a bias or a penalty; larger ones say the same


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How the tokens of one request are chosen.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  temperature: float = 1.0  # 0: the likeliest token
  top_k: int = 0  # 0: all tokens
  top_p: float = 1.0  # in (0, 1]
  min_p: float = 0.0  # in [0, 1], of the likeliest token's probability
  repetition_penalty: float = 1.0  # above 1 makes repetitions rarer
  presence_penalty: float = 0.0
  frequency_penalty: float = 0.0
  logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    sampling.Sampling(self.temperature, self.top_k, self.top_p)
    if not 0 <= self.min_p <= 1:
      errors.refuse('min_p', self.min_p, 'give a number in [0, 1]')
    if not 0 < self.repetition_penalty < math.inf:
      errors.refuse(
        'repetition_penalty',
        self.repetition_penalty,
        'give a finite number above 0; 1 is no penalty',
      )
    for name in ('presence_penalty', 'frequency_penalty'):
      if not abs(getattr(self, name)) <= STRONGEST:
        errors.refuse(
          name, getattr(self, name), f'give -{STRONGEST:g} to {STRONGEST:g}'
        )
    for token, bias in self.logit_bias.items():
      if not abs(bias) <= STRONGEST:
        errors.refuse(
          f'logit_bias[{token}]', bias, f'give -{STRONGEST:g} to {STRONGEST:g}'
        )

  @property
  def counts_tokens(self) -> bool:
    """Whether it depends on which tokens the prompt or the text has."""
    penalties = self.presence_penalty, self.frequency_penalty
    return self.repetition_penalty != 1 or any(penalties)


Column = jax.Array | np.ndarray


class Rows(NamedTuple):
  """The options of B rows. Rows that aren't active are computed and ignored."""

  active_B: Column
  seed_B: Column  # the low 32 bits
  seed_high_B: Column  # the high 32 bits
  index_B: Column  # of the row among those of one seed
  temperature_B: Column
  top_k_B: Column
  top_p_B: Column
  min_p_B: Column
  repetition_B: Column
  presence_B: Column
  frequency_B: Column
  biased_B: Column
  constrained_B: Column
  limit_B: Column  # new tokens, at most
  least_B: Column  # before the boundary may come
  boundary_B: Column  # the token that ends the row; -1: none
  alternatives_B: Column  # likeliest tokens to report
  adapter_B: Column  # of the model that makes the logits


def make_table(B: int) -> Rows:
  """Returns the options of B rows that aren't active, on the host."""

  def full(value, kind):
    return np.full(B, value, kind)

  return Rows(
    active_B=full(False, np.bool_),
    seed_B=full(0, np.uint32),
    seed_high_B=full(0, np.uint32),
    index_B=full(0, np.uint32),
    temperature_B=full(1, np.float32),
    top_k_B=full(0, np.int32),
    top_p_B=full(1, np.float32),
    min_p_B=full(0, np.float32),
    repetition_B=full(1, np.float32),
    presence_B=full(0, np.float32),
    frequency_B=full(0, np.float32),
    biased_B=full(False, np.bool_),
    constrained_B=full(False, np.bool_),
    limit_B=full(0, np.int32),
    least_B=full(0, np.int32),
    boundary_B=full(-1, np.int32),
    alternatives_B=full(0, np.int32),
    adapter_B=full(0, np.int32),
  )


class Packed(NamedTuple):
  """Rows as two arrays, whose transfer costs less than that of many."""

  whole_NxB: Column  # int32; seeds by their bits
  real_NxB: Column  # float32


def pack(rows: Rows) -> Packed:
  """Returns options on the host as two new arrays."""
  whole = [x for x in rows if x.dtype != np.float32]
  real = [x for x in rows if x.dtype == np.float32]
  return Packed(
    np.stack([np.asarray(x).astype(np.int32) for x in whole]), np.stack(real)
  )


def unpack(packed: Packed) -> Rows:
  """Returns the options in a program; the inverse of `pack`."""
  whole, real = iter(packed.whole_NxB), iter(packed.real_NxB)
  return Rows(
    *(
      next(real) if x.dtype == np.float32 else next(whole).astype(x.dtype)
      for x in make_table(1)
    )
  )


class Memory(NamedTuple):
  """What penalties and biases read of each row."""

  prompt_BxV: jax.Array  # whether the prompt has the token
  count_BxV: jax.Array  # of the token among the new ones
  bias_BxV: jax.Array


def words(vocabulary: int) -> int:
  """Returns M, the words of a row's mask of allowed tokens."""
  return -(-vocabulary // WORD)


def keys(rows: Rows) -> jax.Array:
  """Returns a PRNG key for each row.

  Of seeds below 2**32 they are those of inference/decode.py.
  """

  def make(low, high, n):
    key = jax.random.key(low)
    key = jnp.where(high == 0, key, jax.random.fold_in(key, high))
    return jax.random.fold_in(key, n)

  return jax.vmap(make)(rows.seed_B, rows.seed_high_B, rows.index_B)


def adjust(
  logits_BxV: jax.Array,
  rows: Rows,
  position_B: jax.Array,
  memory: Memory,
  allowed_BxM: jax.Array,
) -> jax.Array:
  """Returns the logits to sample from: biases, penalties, allowed tokens.

  Args:
    logits_BxV: of the model.
    rows: their options.
    position_B: new tokens so far.
    memory: what biases and penalties read.
    allowed_BxM: bits of the tokens that constrained rows may choose.
  """
  early_B = (rows.boundary_B >= 0) & (position_B < rows.least_B)
  penalized_B = (
    (rows.repetition_B != 1) | (rows.presence_B != 0) | (rows.frequency_B != 0)
  )
  some_B = early_B | penalized_B | rows.biased_B | rows.constrained_B
  some_B = some_B & rows.active_B

  def adjusted():
    x = logits_BxV
    x = jnp.where(rows.biased_B[:, None], x + memory.bias_BxV, x)
    x = jnp.where(penalized_B[:, None], _penalize(x, rows, memory), x)
    token_V = jnp.arange(x.shape[1])[None]
    at_boundary_BxV = token_V == rows.boundary_B[:, None]
    x = jnp.where(at_boundary_BxV & early_B[:, None], -jnp.inf, x)
    refused_BxV = ~_bits(allowed_BxM, x.shape[1]) & rows.constrained_B[:, None]
    return jnp.where(refused_BxV, -jnp.inf, x)

  return jax.lax.cond(jnp.any(some_B), adjusted, lambda: logits_BxV)


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


def choose(keys_B: jax.Array, logits_BxV: jax.Array, rows: Rows) -> jax.Array:
  """Returns token_B, int32; a row depends only on its own key and logits."""
  V = logits_BxV.shape[1]
  warm_B = (rows.temperature_B > 0) & rows.active_B
  sorted_B = warm_B & ((rows.top_k_B > 0) | (rows.top_p_B < 1))
  few_B = sorted_B & (rows.top_k_B > 0) & (rows.top_k_B <= WIDTH)
  token_B = jnp.argmax(logits_BxV, -1).astype(jnp.int32)
  scaled_BxV = logits_BxV - jnp.max(logits_BxV, -1, keepdims=True)
  temperature_B = jnp.maximum(rows.temperature_B, sampling.COLDEST)
  scaled_BxV = scaled_BxV / temperature_B[:, None]
  uniform_B = jax.vmap(jax.random.uniform)(keys_B)

  def among_all():
    weights = _above(jnp.exp(scaled_BxV), rows)
    return sampling.draw(uniform_B, weights)

  def among_first(k):
    z_BxK, tokens_BxK = jax.lax.top_k(scaled_BxV, k)
    weights = jnp.exp(z_BxK)
    top_k = jnp.where(rows.top_k_B > 0, rows.top_k_B, V)[:, None]
    weights = jnp.where(jnp.arange(k)[None] < top_k, weights, 0.0)
    nucleus = sampling.nucleus(weights, rows.top_p_B[:, None])
    weights = jnp.where(rows.top_p_B[:, None] < 1, nucleus, weights)
    chosen_B = sampling.draw(uniform_B, _above(weights, rows))
    return jnp.take_along_axis(tokens_BxK, chosen_B[:, None], -1)[:, 0]

  for wanted_B, sample in (
    (warm_B & ~sorted_B, among_all),
    (few_B, lambda: among_first(min(WIDTH, V))),
    (sorted_B & ~few_B, lambda: among_first(V)),
  ):
    token_B = jax.lax.cond(
      jnp.any(wanted_B),
      lambda old_B, wanted_B=wanted_B, sample=sample: jnp.where(
        wanted_B, sample(), old_B
      ),
      lambda old_B: old_B,
      token_B,
    )
  return token_B


def _above(weights, rows):
  """Zeroes what is below min_p; the largest weight is 1."""
  return jnp.where(weights >= rows.min_p_B[:, None], weights, 0.0)


def logprobs(
  logits_BxV: jax.Array, token_B: jax.Array, rows: Rows
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns (logprob_B, likeliest tokens BxK, their log-probabilities BxK).

  They are the model's, whatever the sampling. K is ALTERNATIVES, or all tokens
  of a smaller vocabulary; they are zeros if no row wants any.
  """
  total_B = jax.nn.logsumexp(logits_BxV, -1)
  chosen = jnp.take_along_axis(logits_BxV, token_B[:, None], -1)[:, 0]
  K = min(ALTERNATIVES, logits_BxV.shape[1])

  def likeliest():
    z_BxK, tokens_BxK = jax.lax.top_k(logits_BxV, K)
    return tokens_BxK, z_BxK - total_B[:, None]

  def none():
    shape = len(token_B), K
    return jnp.zeros(shape, jnp.int32), jnp.zeros(shape)

  some = jnp.any((rows.alternatives_B > 0) & rows.active_B)
  return chosen - total_B, *jax.lax.cond(some, likeliest, none)
