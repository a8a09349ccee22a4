"""Naive forecasts, against statsforecast's and statsmodels' own parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from statsforecast import models
from statsmodels.tsa import seasonal
from statsmodels.tsa import stattools

from rnn_jax import errors
from rnn_jax.evaluation.forecasting import baselines

NAN = np.nan
PATTERN = np.array([2.0, 1.0, 0.5, 0.5])  # of mean 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(1, 20), st.integers(0, 99))
def test_they_are_those_of_statsforecast(season, horizon, seed):
  x = np.random.default_rng(seed).normal(5, 2, 3 * season + 2)
  pairs = (
    (baselines.naive(x, horizon), models.Naive()),
    (
      baselines.seasonal_naive(x, horizon, season),
      models.SeasonalNaive(season),
    ),
  )
  for ours, model in pairs:
    theirs = model.forecast(x, h=horizon, level=[80])
    np.testing.assert_allclose(ours.mean_L, theirs['mean'], rtol=1e-9)
    quantiles = ours.quantiles([0.1, 0.9])
    np.testing.assert_allclose(quantiles[:, 0], theirs['lo-80'], rtol=1e-6)
    np.testing.assert_allclose(quantiles[:, 1], theirs['hi-80'], rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(3, 8), st.integers(0, 999))
def test_the_season_is_that_of_statsmodels(season, cycles, seed):
  rng = np.random.default_rng(seed)
  length = season * cycles + seed % season
  strength = seed % 4 / 4
  index = 1 + strength * rng.uniform(-1, 1, season)
  x = 10 * index[np.arange(length) % season] + rng.uniform(0, 5, length)
  r = stattools.acf(x, nlags=season, fft=False)[1:]
  limit = 1.645 * np.sqrt((1 + 2 * np.sum(r[:-1] ** 2)) / length)
  assert baselines.seasonal(x, season) == (abs(r[-1]) > limit)
  if not baselines.seasonal(x, season):
    assert np.all(baselines.indices(x, season) == 1)
    last = np.full(season, x[-1])
    assert np.array_equal(baselines.naive2(x, season, season).mean_L, last)
    return
  theirs = seasonal.seasonal_decompose(
    x, 'multiplicative', period=season
  ).seasonal
  np.testing.assert_allclose(
    baselines.indices(x, season), theirs[:season], rtol=1e-9
  )
  adjusted = x[-1] / theirs[length - 1]
  expected = adjusted * theirs[np.arange(length, length + 20) % season]
  np.testing.assert_allclose(
    baselines.naive2(x, 20, season).mean_L, expected, rtol=1e-9
  )


def test_a_pure_season_is_forecast_exactly():
  x = 8 * PATTERN[np.arange(18) % 4]  # ends with 16, 8
  assert baselines.indices(x, 4) == pytest.approx(PATTERN)
  naive2 = baselines.naive2(x, 5, 4)
  assert naive2.mean_L == pytest.approx([4, 4, 16, 8, 4])
  assert naive2.deviation_L == pytest.approx(np.zeros(5), abs=1e-12)
  assert baselines.seasonal_naive(x, 5, 4).mean_L == pytest.approx(
    [4, 4, 16, 8, 4]
  )


def test_gaps_leave_a_pure_season_exact():
  x = 8 * PATTERN[np.arange(40) % 4]
  x[[0, 13, 38, 39]] = NAN
  assert baselines.indices(x, 4) == pytest.approx(PATTERN)
  for forecast in (baselines.naive2, baselines.seasonal_naive):
    assert forecast(x, 3, 4).mean_L == pytest.approx([16, 8, 4])
  assert baselines.naive(x, 2).mean_L == pytest.approx([8, 8])


def test_deviations_grow_with_the_steps():
  x = np.array([1.0, 2.0, NAN, 4.0, 6.0])  # errors 1 and 2, root 5 / 2
  naive = baselines.naive(x, 4)
  root = np.sqrt(5 / 2)
  assert naive.deviation_L == pytest.approx(root * np.sqrt([1, 2, 3, 4]))
  quantiles = naive.quantiles([0.5, 0.975])
  assert quantiles[:, 0] == pytest.approx([6] * 4)
  assert quantiles[3, 1] == pytest.approx(6 + 1.959964 * 2 * root)
  seasonal_naive = baselines.seasonal_naive(x, 5, 3)  # errors 3 and 4
  root = np.sqrt(25 / 2)
  assert seasonal_naive.deviation_L == pytest.approx(
    root * np.sqrt([1, 1, 1, 2, 2])
  )
  # The third place of the season was never observed.
  assert list(seasonal_naive.mean_L) == [6, 4, 6, 6, 4]


@pytest.mark.parametrize(
  'x',
  (
    np.ones(20),  # constant
    8 * PATTERN[np.arange(11) % 4],  # fewer than three seasons
    8 * PATTERN[np.arange(20) % 4] - 4,  # a reading of 0
    np.where(np.arange(20) % 4 == 1, NAN, PATTERN[np.arange(20) % 4]),
    np.array([3.0]),
  ),
)
def test_without_a_known_season_naive2_is_naive(x):
  naive2, naive = baselines.naive2(x, 6, 4), baselines.naive(x, 6)
  assert np.array_equal(naive2.mean_L, naive.mean_L)
  assert np.array_equal(naive2.deviation_L, naive.deviation_L)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  (
    (([1.0], 0, 1), 'horizon=0'),
    (([1.0], 1, 0), 'season=0'),
    (([], 1, 1), 'history_L'),
    (([NAN, NAN], 1, 1), 'history_L'),
    (([[1.0]], 1, 1), 'history_L'),
  ),
)
def test_bad_arguments_are_named(arguments, message):
  for forecast in baselines.BASELINES.values():
    with pytest.raises(errors.InputError, match=message):
      forecast(*arguments)
