"""Schedule-free AdamW against its equations."""

import numpy as np

from tests.training.optimizers import following


def test_parameters_follow_the_published_equations():
  b1, b2, eps = 0.8, 0.95, 1e-8

  def reference(x, gradients, decay):
    z, v, total = x, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
      rate = following.rate(t - 1)
      y = (1 - b1) * z + b1 * x
      v = b2 * v + (1 - b2) * g**2
      u = g / (np.sqrt(v / (1 - b2**t)) + eps)
      z = z - rate * (u + decay * y)
      total += rate**2
      x = (1 - rate**2 / total) * x + rate**2 / total * z
    return x

  settings = following.config('schedule_free', b1=b1, b2=b2)
  following.compare(settings, reference)
