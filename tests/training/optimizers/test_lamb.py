"""LAMB against its equations in float64, each layer's norm by itself."""

import numpy as np

from tests.training.optimizers import following


def test_parameters_follow_the_published_equations():
  b1, b2, eps = 0.8, 0.95, 1e-6

  def reference(p, gradients, decay):
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
      m = b1 * m + (1 - b1) * g
      v = b2 * v + (1 - b2) * g**2
      u = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * p
      ratio = np.linalg.norm(p) / np.linalg.norm(u)
      p = p - following.rate(t - 1) * ratio * u
    return p

  settings = following.config('lamb', b1=b1, b2=b2, eps=eps)
  following.compare(settings, reference)
