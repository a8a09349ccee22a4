"""Lion against its equations in float64."""

import numpy as np

from tests.training.optimizers import following


def test_parameters_follow_the_published_equations():
  def reference(p, gradients, decay):
    m = 0.0
    for step, g in enumerate(gradients):
      u = np.sign(0.8 * m + (1 - 0.8) * g)
      m = 0.95 * m + (1 - 0.95) * g
      p = p - following.rate(step) * (u + decay * p)
    return p

  following.compare(following.config('lion', b1=0.8, b2=0.95), reference)
