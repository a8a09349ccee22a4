"""Rotary positions against complex numbers in float64."""

import numpy as np

from rnn_jax.ops import rotary


def test_equals_a_complex_product():
  x = np.random.default_rng(0).normal(size=(2, 5, 3, 6)).astype(np.float32)
  position = np.array([[0, 1, 7, -3, 900]])
  pairs = np.float64(x[..., :3]) + 1j * x[..., 3:]
  angle = position[0][:, None] * 100.0 ** (-np.arange(3) / 3)
  want = pairs * np.exp(1j * angle)[:, None]
  want = np.concatenate([want.real, want.imag], -1)
  got = rotary.rotate(x, position, 100.0)
  np.testing.assert_allclose(got, want, rtol=0, atol=5e-6)  # measured: 1.2e-6
  wider = np.concatenate([x, 2 * x[..., :3]], -1)
  got = rotary.rotate(wider, position, 100.0, rotated=6)
  np.testing.assert_allclose(got[..., :6], want, rtol=0, atol=5e-6)
  np.testing.assert_array_equal(got[..., 6:], wider[..., 6:])


def test_scaled_angles():
  base = 500.0
  own = base ** (-np.arange(3) / 3) / (2 * np.pi)
  length = 2 / own[1]  # the second pair turns twice in it
  for scaling, want in (
    ((4,), own / 4),
    ((4, 1, 3, length), [own[0], own[1] * (1 + 1 / 4) / 2, own[2] / 4]),
  ):
    cos, sin = rotary.angles(np.array([[0, 5]]), 3, base, scaling)
    angle = 2 * np.pi * 5 * np.array(want)
    np.testing.assert_allclose(cos[0, 1], np.cos(angle), rtol=0, atol=1e-6)
    np.testing.assert_allclose(sin[0, 1], np.sin(angle), rtol=0, atol=1e-6)


def test_scaled_angles_of_larger_vectors():
  # Pairs turn 10 times and once in the length at i = .33 and 1.4.
  scaling = 4, 1, 10, 20 * 2 * np.pi, 1.5
  own = 500.0 ** (-np.arange(3) / 3)
  want = 5 * own * np.array([1, (1 + 1 / 4) / 2, 1 / 4])
  cos, sin = rotary.angles(np.array([[0, 5]]), 3, 500.0, scaling)
  np.testing.assert_allclose(cos[0, 1], 1.5 * np.cos(want), rtol=0, atol=2e-6)
  np.testing.assert_allclose(sin[0, 1], 1.5 * np.sin(want), rtol=0, atol=2e-6)


def test_a_product_depends_only_on_the_difference_of_positions():
  q, k = np.random.default_rng(0).normal(size=(2, 1, 1, 1, 8))
  products = [
    np.vdot(*(rotary.rotate(x, np.array([[p]]), 10.0) for x, p in pairs))
    for pairs in (
      ((q, 9), (k, 4)),
      ((q, 5), (k, 0)),
      ((q, 0), (k, -5)),
      ((q, 1_000_009), (k, 1_000_004)),
      ((q, 4), (k, 9)),
    )
  ]
  np.testing.assert_allclose(products[:4], products[0], rtol=1e-5)
  assert abs(products[4] - products[0]) > 0.1
