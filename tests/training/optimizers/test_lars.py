"""LARS against its equations in float64, each layer's norm by itself."""

import jax
import numpy as np
import pytest

from rnn_jax.training import optimizer
from tests.training.optimizers import following


@pytest.mark.parametrize('nesterov', (False, True))
def test_parameters_follow_the_published_equations(nesterov):
  b1, trust = 0.8, 0.02

  def reference(p, gradients, decay):
    m = 0.0
    for step, g in enumerate(gradients):
      u = g + decay * p
      ratio = trust * np.linalg.norm(p) / np.linalg.norm(u)
      own = following.rate(step) * ratio * u
      m = own + b1 * m
      p = p - (own + b1 * m if nesterov else m)
    return p

  settings = following.config('lars', b1=b1, trust=trust, nesterov=nesterov)
  following.compare(settings, reference)


def test_zeros_take_the_gradient_as_it_is():
  transform = optimizer.make(
    following.config('lars').optimizer, lambda step: 0.5
  )
  params = {'bias': np.zeros(3, np.float32)}
  gradient = {'bias': np.float32([1, 2, -3])}
  state = jax.jit(transform.init)(params)
  updates, _ = jax.jit(transform.update)(gradient, state, params)
  np.testing.assert_array_equal(updates['bias'], [-0.5, -1.0, 1.5])
