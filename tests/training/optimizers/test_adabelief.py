"""AdaBelief against its equations in float64."""

import numpy as np

from tests.training.optimizers import following


def test_parameters_follow_the_published_equations():
  b1, b2, eps = 0.8, 0.95, 1e-3

  def reference(p, gradients, decay):
    m = s = 0.0
    for t, g in enumerate(gradients, 1):
      m = b1 * m + (1 - b1) * g
      s = b2 * s + (1 - b2) * (g - m) ** 2 + eps**2
      u = m / (1 - b1**t) / (np.sqrt(s / (1 - b2**t)) + eps)
      p = p - following.rate(t - 1) * (u + decay * p)
    return p

  settings = following.config('adabelief', b1=b1, b2=b2, eps=eps)
  following.compare(settings, reference)
