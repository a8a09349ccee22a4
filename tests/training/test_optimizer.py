"""AdamW against the published equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer
from rnn_jax.training import schedules
from tests.training import test_schedules


def config(**changes):
  raw = config_lib.default()
  raw.train.steps = 20
  raw.schedule.warmup_steps = 5
  raw.optimizer.update(changes)
  return config_lib.parse(raw)


def test_adamw_equals_the_published_equations():
  settings = config(clip_norm=0.0, weight_decay=0.1, learning_rate=1e-3)
  rng = np.random.default_rng(0)
  params = {'kernel': rng.normal(size=(3, 2)), 'bias': rng.normal(size=2)}
  transform = optimizer.make(settings, schedules.warmup_cosine(settings))
  ours = jax.tree.map(jnp.float32, params)
  state = transform.init(ours)
  m = v = {name: 0.0 for name in params}
  for step in range(6):
    gradient = {n: rng.normal(size=p.shape) for n, p in params.items()}
    updates, state = transform.update(
      jax.tree.map(jnp.float32, gradient), state, ours
    )
    ours = jax.tree.map(jnp.add, ours, updates)
    rate = test_schedules.reference_rate(settings, step)
    m = {n: 0.9 * m[n] + 0.1 * gradient[n] for n in m}
    v = {n: 0.99 * v[n] + 0.01 * gradient[n] ** 2 for n in v}
    for name, value in params.items():
      direction = m[name] / (1 - 0.9 ** (step + 1))
      scale = np.sqrt(v[name] / (1 - 0.99 ** (step + 1))) + 1e-8
      decay = 0.1 * value if name == 'kernel' else 0.0
      params[name] = value - rate * (direction / scale + decay)
  for name, value in params.items():
    np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-7)


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
