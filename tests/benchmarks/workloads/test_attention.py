"""Attention beside our model: a window is a mask, and blocks are exact."""

import jax
import numpy as np
import pytest

from benchmarks.workloads import attention_model
from benchmarks.workloads import operators


@pytest.mark.parametrize('length', (3, 8, 21))
def test_a_window_in_blocks_is_a_mask(length):
  q, k, v = jax.random.normal(jax.random.key(0), (3, 2, length, 5))
  window = 4
  got = jax.jit(attention_model.attend, static_argnums=3)(q, k, v, window)
  apart = np.arange(length)[:, None] - np.arange(length)
  scores = np.einsum('bia,bja->bij', q, k) / np.sqrt(5)
  weights = np.where((apart >= 0) & (apart < window), np.exp(scores), 0)
  weights /= weights.sum(-1, keepdims=True)
  np.testing.assert_allclose(got, weights @ np.float64(v), rtol=1e-4, atol=1e-6)


def test_blocks_of_attention_are_compared_with_all_scores_at_once():
  apart = operators.attention_difference([1, 150, 1, 4, 6])['differences']
  assert [*apart] == ['y', 'q', 'k', 'v']
  assert 0 < max(apart.values()) < 1e-5
