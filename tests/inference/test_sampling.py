"""Samples against probabilities computed in NumPy from the definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from tests.inference import tables

DRAWS = 20_000
PROBABILITIES = np.array([0.05, 0.4, 0.1, 0.25, 0.2])
LOGITS = np.log(PROBABILITIES).astype(np.float32) + 3


@functools.partial(jax.jit, static_argnums=3)
def draw(keys_B, logits_BxV, packed, kind):
  rows = sampling.unpack(packed)
  return sampler.choose(keys_B, logits_BxV, rows, kind)


def sample(keys_B, logits_BxV, settings):
  """Tokens of rows with these settings, by the program of their kind."""
  packed = tables.packed(settings, range(len(keys_B)))
  return draw(keys_B, logits_BxV, packed, settings.kind(logits_BxV.shape[1]))


@functools.cache
def keys(seed, count):
  return jax.random.split(jax.random.key(seed), count)


def frequencies(logits, draws=DRAWS, **settings):
  """Returns how often each token was drawn, by the program of the kind."""
  settings = sampling.Sampling(**settings)
  rows = np.broadcast_to(logits, (draws, len(logits)))
  tokens = sample(keys(0, draws), rows, settings)
  assert tokens.dtype == jnp.int32
  return np.bincount(tokens, minlength=len(logits))


def expected(temperature=1.0, kept=range(5)):
  weights = np.zeros(5)
  weights[list(kept)] = PROBABILITIES[list(kept)] ** (1 / temperature)
  return weights / weights.sum()


CASES = [
  ({}, expected()),
  ({'temperature': 0.5}, expected(0.5)),
  ({'temperature': 3.0}, expected(3.0)),
  ({'top_k': 1}, expected(kept=[1])),
  ({'top_k': 3}, expected(kept=[1, 3, 4])),
  ({'top_k': 99}, expected()),
  ({'top_p': 0.01}, expected(kept=[1])),
  ({'top_p': 0.6}, expected(kept=[1, 3])),
  ({'top_p': 0.7}, expected(kept=[1, 3, 4])),
  ({'temperature': 0.5, 'top_k': 4, 'top_p': 0.9}, expected(0.5, [1, 3, 4])),
]


@pytest.mark.parametrize(('settings', 'probabilities'), CASES)
def test_frequencies(settings, probabilities):
  counts = frequencies(LOGITS, **settings)
  possible = probabilities > 0
  assert not counts[~possible].any()
  wanted = DRAWS * probabilities[possible]
  chi_square = np.sum((counts[possible] - wanted) ** 2 / wanted)
  assert chi_square < 18.5  # 4 degrees of freedom: 1 in 1000 by chance


def test_a_large_vocabulary_keeps_its_proportions():
  logits = np.random.default_rng(0).normal(size=5000).astype(np.float32)
  probabilities = np.exp(logits) / np.exp(logits).sum()
  draws = 2000  # of a group about 40 are expected
  groups = draws * np.add.reduceat(probabilities, range(0, 5000, 100))
  counts = frequencies(logits, draws=draws)
  counts = np.add.reduceat(counts, range(0, 5000, 100))
  chi_square = np.sum((counts - groups) ** 2 / groups)
  assert chi_square < 85.4  # 49 degrees of freedom: 1 in 1000


@pytest.mark.parametrize('settings', ({'temperature': 0}, {'top_k': 1}))
def test_ties_go_to_the_lower_id(settings):
  counts = frequencies(np.array([0, 2, 1, 2, -1], np.float32), **settings)
  assert counts.tolist() == [0, DRAWS, 0, 0, 0]


def test_top_k_takes_exactly_k_of_equal_tokens():
  counts = frequencies(np.zeros(5, np.float32), top_k=2)
  assert np.flatnonzero(counts).tolist() == [0, 1]


@pytest.mark.parametrize('settings', ({}, {'top_k': 3}, {'top_p': 0.99}))
def test_an_impossible_token_is_never_drawn(settings):
  logits = np.array([-np.inf, 0, -np.inf, 1, -np.inf], np.float32)
  counts = frequencies(logits, **settings)
  assert np.flatnonzero(counts).tolist() == [1, 3]


@pytest.mark.parametrize('temperature', (1e-45, 1e-30, 1e-6))
def test_a_tiny_temperature_is_greedy(temperature):
  counts = frequencies(1e4 * LOGITS, temperature=temperature)
  assert counts[1] == DRAWS


@pytest.mark.parametrize(
  ('settings', 'message'),
  (
    ({'temperature': -0.5}, 'temperature=-0.5: give a finite number >= 0'),
    ({'temperature': float('nan')}, 'temperature=nan'),
    ({'temperature': float('inf')}, 'temperature=inf'),
    ({'top_k': -1}, 'top_k=-1: give 1 or more, or 0'),
    ({'top_p': 0.0}, r'top_p=0.0: give a number in \(0, 1\]'),
    ({'top_p': 1.5}, 'top_p=1.5'),
    ({'top_p': float('nan')}, 'top_p=nan'),
    ({'min_p': 1.1}, 'min_p=1.1'),
    ({'repetition_penalty': 0}, 'repetition_penalty=0'),
    ({'presence_penalty': 101}, 'presence_penalty=101'),
    ({'frequency_penalty': float('nan')}, 'frequency_penalty=nan'),
    ({'logit_bias': {3: float('inf')}}, r'logit_bias\[3\]=inf'),
  ),
)
def test_bad_settings_are_refused(settings, message):
  with pytest.raises(errors.InputError, match=message):
    sampling.Sampling(**settings)


@pytest.mark.parametrize(
  'settings', ({}, {'top_k': 7}, {'top_p': 0.4}), ids=str
)
def test_a_row_depends_only_on_its_own_key_and_logits(settings):
  settings = sampling.Sampling(**settings)
  logits = jax.random.normal(jax.random.key(1), (64, 40))
  together = sample(keys(2, 64), logits, settings)
  order = np.random.default_rng(0).permutation(64)
  shuffled = sample(keys(2, 64)[order], logits[order], settings)
  np.testing.assert_array_equal(together[order], shuffled)
  single = sample(keys(2, 64)[5:6], logits[5:6], settings)
  assert together[5] == single[0]
  assert len(np.unique(together)) > 5


def test_kinds_are_few():
  rng = np.random.default_rng(0)
  kinds = {
    sampling.Sampling(
      rng.choice([0.0, rng.uniform(0.01, 5)]),
      int(rng.integers(0, 1000)),
      rng.choice([1.0, rng.uniform(0.01, 1)]),
    ).kind(5000)
    for _ in range(300)
  }
  assert len(kinds) <= 1 + 2 * 8
