"""Scores of forecasts, by hand and against utilsforecast."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from utilsforecast import losses

from rnn_jax import errors
from rnn_jax.evaluation.forecasting import metrics

NAN = np.nan
Y = np.array([[100.0, 200.0]])
FORECAST = np.array([[110.0, 180.0]])
LEVELS = np.array([0.1, 0.5, 0.9])


def test_scores_of_two_steps_by_hand():
  assert metrics.smape(Y, FORECAST) == pytest.approx(
    100 * (10 / 210 + 20 / 380)
  )
  history = [np.array([1.0, 5.0, 4.0, 11.0])]  # differences at lag 2: 3, 6
  scale = metrics.absolute_scale(history, 2)
  assert scale == pytest.approx([4.5])
  assert metrics.mase(Y, FORECAST, scale) == pytest.approx([15 / 4.5])
  squared = metrics.squared_scale(history, 1)  # 4, -1, 7
  assert squared == pytest.approx([22])
  rmsse = metrics.rmsse(Y, FORECAST, squared)
  assert rmsse == pytest.approx([np.sqrt(250 / 22)])
  assert metrics.owa(10.0, 3.0, (20.0, 2.0)) == 1.0
  # 15 wide, and 20 above the second interval: a = 0.2.
  msis = metrics.msis(Y, Y - [[5, 25]], Y + [[10, -20]], scale, 0.8)
  assert msis == pytest.approx([(15 + 5 + 10 * 20) / 2 / 4.5])
  assert metrics.coverage(Y, Y - [[0, 25]], Y + [[10, -20]]) == [0.5]


def test_quantile_losses_by_hand():
  quantiles = np.array([[[90.0, 110.0], [150.0, 260.0]]])
  losses_NxQ = metrics.quantile_loss(Y, quantiles, [0.2, 0.9])
  # 2 q (y - f) below y, 2 (1 - q) (f - y) above it.
  assert losses_NxQ == pytest.approx(np.array([[4 + 20, 2 + 12]]))
  wql = metrics.weighted_quantile_loss(losses_NxQ, metrics.sizes(Y))
  assert wql == pytest.approx((24 + 14) / 2 / 300)


@settings(max_examples=25, deadline=None)
@given(
  st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.integers(0, 99)
)
def test_they_are_those_of_utilsforecast(count, horizon, season, seed):
  rng = np.random.default_rng(seed)
  y = rng.normal(3, 5, (count, horizon))
  quantiles = np.sort(rng.normal(3, 5, (count, horizon, 3)))
  low, point, high = np.moveaxis(quantiles, -1, 0)
  histories = [rng.normal(3, 5, season + 2 + n) for n in range(count)]
  frame = pd.DataFrame(
    {
      'unique_id': np.repeat(np.arange(count), horizon),
      'ds': np.tile(np.arange(100, 100 + horizon), count),
      'y': y.ravel(),
      'm': point.ravel(),
      'm-lo-80': low.ravel(),
      'm-hi-80': high.ravel(),
    }
  )
  past = pd.concat(
    pd.DataFrame({'unique_id': n, 'ds': np.arange(len(x)), 'y': x})
    for n, x in enumerate(histories)
  )
  absolute = metrics.absolute_scale(histories, season)
  theirs = {
    'smape': 200 * losses.smape(frame, ['m'])['m'],
    'mase': losses.mase(frame, ['m'], season, past)['m'],
    'rmsse': losses.rmsse(frame, ['m'], season, past)['m'],
    'msis': losses.winkler_score(frame, ['m'], 80)['m'] / absolute,
    'coverage': losses.coverage(frame, ['m'], 80)['m'],
  }
  squared = metrics.squared_scale(histories, season)
  ours = {
    'smape': metrics.smape(y, point),
    'mase': metrics.mase(y, point, absolute),
    'rmsse': metrics.rmsse(y, point, squared),
    'msis': metrics.msis(y, low, high, absolute, 0.8),
    'coverage': metrics.coverage(y, low, high),
  }
  for name, score in ours.items():
    np.testing.assert_allclose(score, theirs[name], rtol=1e-9, err_msg=name)
  columns = {'m': ['m-lo-80', 'm', 'm-hi-80']}
  crps = losses.scaled_crps(frame, columns, LEVELS)['m']
  each = metrics.quantile_loss(y, quantiles, LEVELS).mean(1) / metrics.sizes(y)
  np.testing.assert_allclose(each, crps, rtol=1e-6)


def test_a_missing_reading_is_left_out():
  y = np.array([[100.0, NAN, 200.0], [NAN] * 3])
  forecast = np.array([[110.0, 7.0, 180.0], [1.0] * 3])
  smape = metrics.smape(y, forecast)
  assert smape[0] == metrics.smape(Y, FORECAST) and np.isnan(smape[1])
  assert metrics.mean(smape, y) == smape[0]
  quantiles = np.repeat(forecast[..., None], 2, -1)
  losses_NxQ = metrics.quantile_loss(y, quantiles, [0.2, 0.5])
  assert losses_NxQ == pytest.approx(np.array([[24, 30], [0, 0]]))
  assert list(metrics.sizes(y)) == [300, 0]
  gap = [np.array([1.0, 5.0, NAN, 4.0, 6.0])]  # pairs at lag 1: 1-5, 4-6
  assert metrics.absolute_scale(gap, 1) == [3.0]
  assert metrics.squared_scale(gap, 1) == [10.0]


def test_a_constant_or_short_history_has_no_scale():
  histories = [np.ones(9), np.ones(2), np.arange(9.0)]
  y = np.repeat(Y, 3, 0)
  scale = metrics.absolute_scale(histories, 2)
  mase = metrics.mase(y, y + 1, scale)
  assert np.isnan(mase[:2]).all() and mase[2] == 0.5
  assert metrics.mean(mase, y, scale) == 0.5
  assert np.isnan(metrics.mean(mase[:2], y[:2], scale[:2]))


def test_zeros():
  zero = np.zeros((1, 2))
  assert metrics.smape(zero, zero) == [0] and metrics.smape(zero, Y) == [200]
  assert np.isnan(metrics.weighted_quantile_loss(np.ones((1, 2)), zero[:, 0]))
  assert np.isnan(metrics.owa(1.0, 1.0, (0.0, 1.0)))


def test_what_is_not_forecast_is_no_better_score():
  y = np.array([[1.0, 2.0], [3.0, NAN]])
  forecast = np.array([[1.0, NAN], [3.0, NAN]])
  smape = metrics.smape(y, forecast)
  assert np.isnan(smape[0]) and smape[1] == 0
  with pytest.raises(errors.InputError, match='every step of 1 series'):
    metrics.mean(smape, y)
  assert np.isnan(metrics.coverage(y, forecast, y)[0])


@pytest.mark.parametrize(
  ('call', 'message'),
  (
    (lambda: metrics.smape(Y, FORECAST[:, :1]), r'forecast_NxL.shape=\(1, 1\)'),
    (lambda: metrics.smape(Y[0], Y[0]), r'forecast_NxL.shape=\(2,\)'),
    (lambda: metrics.quantile_loss(Y, Y, [0.5]), r'quantiles_NxLxQ.shape'),
    (lambda: metrics.quantile_loss(Y, Y[..., None], [1.0]), 'levels_Q'),
    (lambda: metrics.msis(Y, Y, Y, np.ones(1), 95.0), 'coverage=95.0'),
    (lambda: metrics.absolute_scale([Y[0]], 0), 'season=0'),
  ),
)
def test_bad_arguments_are_named(call, message):
  with pytest.raises(errors.InputError, match=message):
    call()
