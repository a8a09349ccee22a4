"""Muon against its equations in float64."""

import numpy as np
import pytest

from tests.training.optimizers import following

A, B, C = 3.4445, -4.775, 2.0315


def scaled(d, norm):
  if norm == 'aol':
    rows = np.abs(d.T @ d).sum(0)  # d is taller than wide
    return d / np.sqrt(rows)
  values = np.linalg.svd(d, compute_uv=False)
  power = {'frobenius': 2, 'schatten': 4, 'spectral': np.inf}[norm]
  return d / np.linalg.norm(values, power)


def orthogonalized(d, norm, steps):
  x = scaled(d, norm)
  for _ in range(steps):
    square = x @ x.T
    x = A * x + (B * square + C * square @ square) @ x
  return x


@pytest.mark.parametrize(
  ('nesterov', 'norm', 'steps'),
  [
    (False, 'frobenius', 5),
    (True, 'frobenius', 5),
    (False, 'spectral', 3),
    (False, 'schatten', 4),
    (False, 'aol', 4),
  ],
)
def test_parameters_follow_the_published_equations(nesterov, norm, steps):
  b1, b2, eps = 0.8, 0.95, 1e-8

  def reference(p, gradients, decay):
    m = v = 0.0
    matrix = p.shape == (6, 5)  # not the head, nor the embedding
    for t, g in enumerate(gradients, 1):
      m = b1 * m + (1 - b1) * g
      v = b2 * v + (1 - b2) * g**2
      if matrix:
        d = m / (1 - b1**t)
        if nesterov:
          d = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        u = 0.2 * np.sqrt(max(p.shape)) * orthogonalized(d, norm, steps)
      else:
        u = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
      p = p - following.rate(t - 1) * (u + decay * p)
    return p

  settings = following.config(
    'muon',
    b1=b1,
    b2=b2,
    nesterov=nesterov,
    newton_schulz_steps=steps,
    preconditioning=norm,
  )
  # Measured: 2e-6, from five products of matrices in float32.
  following.compare(settings, reference, rtol=1e-5, atol=3e-6)
