"""What all optimizers have in common: the clip, and what decays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer


def config(**changes):
  raw = config_lib.default()
  raw.train.steps = 20
  raw.schedule.warmup_steps = 5
  raw.optimizer.update(changes)
  return config_lib.parse(raw)


@pytest.mark.parametrize('name', ('adamw', 'adafactor'))
def test_updates_are_proportional_to_the_rate(name):
  """A schedule scales them afterwards."""
  rng = np.random.default_rng(0)
  params = {'kernel': jnp.float32(rng.normal(size=(130, 140)))}
  gradient = {'kernel': jnp.float32(rng.normal(size=(130, 140)))}
  found = []
  for rate in (1.0, 0.25):
    settings = config(name=name, weight_decay=0.5)
    transform = optimizer.make(settings, lambda step, rate=rate: rate)
    updates, _ = transform.update(gradient, transform.init(params), params)
    found.append(updates['kernel'] / rate)
  np.testing.assert_allclose(*found, rtol=1e-5)


def test_gradients_are_clipped_by_their_global_norm():
  settings = config(clip_norm=1.0)
  transform = optimizer.make(settings, lambda step: 1.0)
  params = {'a': jnp.zeros(2), 'b': jnp.zeros(2)}
  gradient = {'a': jnp.array([30.0, 0.0]), 'b': jnp.array([0.0, 40.0])}
  _, state = transform.update(gradient, transform.init(params), params)
  (mu,) = [
    s.mu
    for s in jax.tree.leaves(state, is_leaf=lambda s: hasattr(s, 'mu'))
    if hasattr(s, 'mu')
  ]
  np.testing.assert_allclose(mu['a'], [0.06, 0.0], rtol=1e-6)
  np.testing.assert_allclose(mu['b'], [0.0, 0.08], rtol=1e-6)


def test_only_kernels_decay():
  params = {
    'cell': {'kernel': 0, 'bias': 0, 'taps': 0},
    'norm': {'scale': 0},
    'embedding': {'embedding': 0},
  }
  assert optimizer.decay_mask(params) == {
    'cell': {'kernel': True, 'bias': False, 'taps': False},
    'norm': {'scale': False},
    'embedding': {'embedding': False},
  }
