"""RAdam against its equations in float64."""

import numpy as np
import pytest

from tests.training.optimizers import following


# 0.5: r_t never exceeds 4. 0.9999: float32 numbers near r have a spacing of
# 0.002, and r_4 is 3.9997.
@pytest.mark.parametrize(
  ('b2', 'steps'), ((0.99, {5, 6, 7}), (0.9999, {5, 6, 7}), (0.5, set()))
)
def test_parameters_follow_the_published_equations(b2, steps):
  b1, eps, rectified = 0.9, 1e-8, set()

  def reference(p, gradients, decay):
    m = v = 0.0
    r = 2 / (1 - b2) - 1
    for t, g in enumerate(gradients, 1):
      m = b1 * m + (1 - b1) * g
      v = b2 * v + (1 - b2) * g**2
      now = r - 2 * t * b2**t / (1 - b2**t)
      u = m / (1 - b1**t)
      if now > 4:
        rectified.add(t)
        c = (now - 4) * (now - 2) * r / ((r - 4) * (r - 2) * now)
        u = np.sqrt(c) * u / (np.sqrt(v / (1 - b2**t)) + eps)
      p = p - following.rate(t - 1) * (u + decay * p)
    return p

  # Measured: 2e-7, as 1 - b2^t loses digits in float32.
  following.compare(following.config('radam', b2=b2), reference, atol=1e-6)
  assert rectified == steps
