"""Adafactor against the published equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.training import optimizer
from tests.training import test_optimizer
from tests.training.optimizers import following


def rms(x):
  return np.sqrt(np.mean(x**2))


def reference(params, gradients, rate, weight_decay):
  """Returns the updated parameters; only 'kernel' is factored and decays."""
  state = {name: 0.0 for name in params} | {'rows': 0.0, 'columns': 0.0}
  for t, gradient in enumerate(gradients, 1):
    b = 1 - t**-0.8
    for name, g in gradient.items():
      square = g**2 + 1e-30
      if name == 'kernel':
        rows = b * state['rows'] + (1 - b) * square.mean(1)
        columns = b * state['columns'] + (1 - b) * square.mean(0)
        state |= {'rows': rows, 'columns': columns}
        update = g / np.sqrt(np.outer(rows, columns) / rows.mean())
      else:
        state[name] = b * state[name] + (1 - b) * square
        update = g / np.sqrt(state[name])
      update /= max(1.0, rms(update))
      p = params[name]
      decay = weight_decay * p if name == 'kernel' else 0.0
      params[name] = p - rate * (max(rms(p), 1e-3) * update + decay)
  return params


def test_parameters_follow_the_published_equations():
  settings = test_optimizer.config(
    name='adafactor', clip_norm=0.0, weight_decay=0.1
  )
  rng = np.random.default_rng(0)
  shapes = {'kernel': (128, 130), 'bias': (20,), 'scale': (5, 300)}
  params, *gradients = (
    {n: rng.normal(size=s) * 3 for n, s in shapes.items()} for _ in range(5)
  )
  params['bias'] *= 0  # as biases start
  transform = optimizer.make(settings.optimizer, lambda step: 1e-2)
  ours = following.follow(transform, params, gradients)
  expected = reference(params, gradients, 1e-2, 0.1)
  for name, value in expected.items():
    np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-6)


def test_each_layer_of_a_stack_follows_them_by_itself():
  settings = test_optimizer.config(name='adafactor', clip_norm=0.0)
  rng = np.random.default_rng(1)
  scales = np.array([0.01, 5.0])[:, None, None]  # layers unlike each other
  params, *gradients = (
    {'kernel': rng.normal(size=(2, 128, 130)) * scales} for _ in range(3)
  )
  gradients[1]['kernel'] *= np.array([50, 0.1])[:, None, None]  # one is clipped
  transform = optimizer.make(settings.optimizer, lambda step: 1e-2, {'kernel'})
  ours = following.follow(transform, params, gradients)
  decay = settings.optimizer.weight_decay
  for layer in range(2):
    own = [{'kernel': x['kernel'][layer]} for x in (params, *gradients)]
    expected = reference(own[0], own[1:], 1e-2, decay)['kernel']
    np.testing.assert_allclose(
      ours['kernel'][layer], expected, rtol=1e-5, atol=1e-7
    )


def test_a_matrix_costs_its_rows_and_columns():
  settings = test_optimizer.config(name='adafactor')
  params = {'kernel': jnp.zeros((4, 256, 512))}
  transform = optimizer.make(settings.optimizer, lambda step: 1e-2)
  state = jax.eval_shape(transform.init, params)
  numbers = sum(x.size for x in jax.tree.leaves(state))
  assert numbers <= 4 * (256 + 512) + 8
