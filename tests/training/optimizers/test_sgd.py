"""SGD against its equations in float64."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.training import optimizer
from tests.training.optimizers import following


@pytest.mark.parametrize(
  ('b1', 'nesterov'), ((0.0, False), (0.8, False), (0.8, True))
)
def test_parameters_follow_the_published_equations(b1, nesterov):
  def reference(p, gradients, decay):
    m = 0.0
    for step, g in enumerate(gradients):
      m = g + b1 * m
      u = g + b1 * m if nesterov else m
      p = p - following.rate(step) * (u + decay * p)
    return p

  settings = following.config('sgd', b1=b1, nesterov=nesterov)
  following.compare(settings, reference)


def test_without_momentum_only_steps_are_kept():
  transform = optimizer.make(
    following.config('sgd', b1=0.0).optimizer, following.rate
  )
  state = jax.tree.leaves(transform.init({'kernel': jnp.zeros((3, 4))}))
  assert [x.shape for x in state] == [()]
