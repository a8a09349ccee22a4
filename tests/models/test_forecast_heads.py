"""Heads against scipy and the equations in float64; quantiles never cross."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from scipy import stats

from rnn_jax.models import forecast_heads

LEVELS = (0.05, 0.3, 0.5, 0.7, 0.95)
SHAPE = 2, 3, 5, 4  # BxLxOxH
ONE = jnp.ones((1, 1, 1))


@jax.jit
def quantiles(out):
  head = forecast_heads.Head('quantiles', LEVELS)
  numbers = head.numbers(out, jnp.zeros((2, 3, 4)))
  return jnp.stack(numbers, -1), head.median(numbers)


# Not subnormal: devices make zeros of some of these.
OUTPUTS = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)


@given(out=st_numpy.arrays(np.float32, SHAPE, elements=OUTPUTS))
def test_quantiles_are_ordered_for_any_outputs(out):
  numbers, median = jax.device_get(quantiles(out))
  assert (np.diff(numbers, axis=-1) >= 0).all()
  assert np.array_equal(median, out[:, :, 2])
  head = forecast_heads.Head('quantiles', LEVELS)
  between = head.quantiles(numbers, np.linspace(0.05, 0.95, 23))
  assert (np.diff(between, axis=-1) >= 0).all()
  np.testing.assert_array_equal(head.quantiles(numbers, LEVELS), numbers)


def test_the_loss_of_quantiles_is_its_equation():
  rng = np.random.default_rng(0)
  q = np.sort(rng.normal(size=(2, 3, 4, 5)), -1)
  y = rng.normal(size=(2, 3, 4))
  head = forecast_heads.Head('quantiles', LEVELS)
  got = head.loss(
    tuple(jnp.asarray(q[..., n], jnp.float32) for n in range(5)),
    jnp.float32(y),
    ONE,
  )
  wanted = np.zeros_like(y)
  for n, level in enumerate(LEVELS):
    below = y < q[..., n]
    wanted += 2 * (level - below) * (y - q[..., n]) / len(LEVELS)
  np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_student_t_is_scipy_s():
  rng = np.random.default_rng(1)
  out = rng.normal(size=(2, 3, 3, 4)).astype(np.float32)
  y = 3 * rng.normal(size=(2, 3, 4))
  head = forecast_heads.Head('student_t', ())
  numbers = head.numbers(jnp.asarray(out), jnp.ones((2, 3, 4)))
  loc, scale, freedom = (np.float64(x) for x in numbers)
  assert (scale > 0).all() and (freedom > 2).all()
  np.testing.assert_allclose(loc, 1 + out[:, :, 0], rtol=1e-6)
  wanted = stats.t.logpdf(y, freedom, loc, scale)
  got = -np.float64(head.loss(numbers, jnp.float32(y), ONE))
  np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
  levels = (0.01, 0.5, 0.9)
  made = head.quantiles(np.stack([loc, scale, freedom], -1), levels)
  for n, level in enumerate(levels):
    np.testing.assert_allclose(
      stats.t.cdf(made[..., n], freedom, loc, scale), level, rtol=1e-9
    )


@pytest.mark.parametrize('kind', forecast_heads.KINDS)
def test_an_output_of_zero_is_the_center(kind):
  head = forecast_heads.Head(kind, LEVELS)
  center = jnp.arange(12.0).reshape(1, 3, 4)
  numbers = head.numbers(jnp.zeros((1, 3, head.outputs, 4)), center)
  if head.counts:  # a mean is above 0
    assert np.allclose(
      head.median(numbers)[center > 0], center[center > 0], 0.01
    )
  else:
    assert np.array_equal(head.median(numbers), center)


def test_negative_binomial_is_scipy_s():
  """Of small and large counts, and dispersions down to Poisson's."""
  rng = np.random.default_rng(2)
  shape = 40, 3, 4
  mean = np.float32(10 ** rng.uniform(-3, 5, shape))
  dispersion = np.float32(10 ** rng.uniform(-4, 2, shape))
  r = 1 / np.float64(dispersion)
  chance = 1 / (1 + np.float64(dispersion) * mean)
  x = stats.nbinom.ppf(rng.random(shape), r, chance)
  x[::4] = 0
  numbers = jnp.asarray(mean), jnp.asarray(dispersion)
  log = jax.jit(forecast_heads.negative_binomial_log)
  got = np.float64(log(numbers, jnp.float32(x)))
  wanted = stats.nbinom.logpmf(x, r, chance)
  np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)

  slope = jax.jit(jax.grad(lambda mu: log((mu, numbers[1]), x).sum()))(mean)
  wanted = (x - mean) / (1 + np.float64(dispersion) * mean)
  np.testing.assert_allclose(slope * mean, wanted, rtol=1e-4, atol=1e-3)


def test_counts_stay_counts():
  """The loss of scaled counts is that of counts; quantiles are whole."""
  rng = np.random.default_rng(3)
  head = forecast_heads.Head('negative_binomial', LEVELS)
  out = rng.normal(size=(2, 3, 2, 4)).astype(np.float32)
  scale = np.float32([[[0.25]], [[37.0]]]).repeat(3, 1)
  x = rng.poisson(4, (2, 3, 4))
  numbers = head.numbers(jnp.asarray(out), jnp.ones((2, 3, 4)))
  assert all((np.asarray(each) > 0).all() for each in numbers)
  mean, dispersion = (np.float64(each) for each in numbers)
  r, chance = 1 / dispersion, 1 / (1 + dispersion * mean * scale)
  loss = head.loss(numbers, jnp.float32(x / scale), jnp.asarray(scale))
  np.testing.assert_allclose(
    loss, -stats.nbinom.logpmf(x, r, chance), rtol=1e-4, atol=1e-4
  )
  one = head.unscaled(np.stack([x[1, 2] for x in numbers]), 0.0, 37.0).T
  made = head.quantiles(one, LEVELS)
  assert (made == np.round(made)).all() and (np.diff(made, axis=-1) >= 0).all()
  for n, level in enumerate(LEVELS):
    below, at = (
      stats.nbinom.cdf(made[:, n] - less, r[1, 2], chance[1, 2])
      for less in (1, 0)
    )
    assert (below < level).all() and (at >= level).all()
  assert np.array_equal(head.points(one), made[:, 2])


def test_a_mean_has_the_squared_error():
  rng = np.random.default_rng(5)
  out, y = rng.normal(size=(2, 1, 3, 1, 4)).astype(np.float32)
  head = forecast_heads.Head('mean', LEVELS)
  numbers = head.numbers(jnp.asarray(out), jnp.ones((1, 3, 4)))
  got = head.loss(numbers, jnp.asarray(y[:, :, 0]), ONE)
  np.testing.assert_allclose(got, (y - out - 1)[:, :, 0] ** 2, rtol=1e-5)
  assert head.degree == 2
  points = np.stack(numbers, -1)
  assert np.array_equal(head.points(points), points[..., 0])
