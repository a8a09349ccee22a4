"""The forecasters of statsforecast, as its own data frames give them."""

import numpy as np
import pandas as pd
import pytest
import statsforecast
from statsforecast import models

from rnn_jax import errors
from rnn_jax.evaluation.forecasting import baselines
from rnn_jax.evaluation.forecasting import statistical

LEVELS = (0.1, 0.5, 0.9)
NAMES = statistical.NAMES


def series():
  """Returns two series of a season of 4."""
  rng = np.random.default_rng(0)
  steps = np.arange(40)
  season = np.array([2.0, 1.0, 0.5, 0.5])[steps % 4]
  first = (10 + 0.2 * steps) * season + rng.normal(0, 0.3, 40)
  return [first, 5 + season[:32] + rng.normal(0, 0.2, 32)]


def test_they_are_the_data_frame_s():
  histories = series()
  frame = pd.concat(
    pd.DataFrame({'unique_id': n, 'ds': np.arange(len(x)), 'y': x})
    for n, x in enumerate(histories)
  )
  forecasters = [getattr(models, name)(season_length=4) for name in NAMES]
  theirs = statsforecast.StatsForecast(forecasters, freq=1).forecast(
    df=frame, h=6, level=[80]
  )
  for name in NAMES:
    ours = statistical.forecast(name, histories, 6, 4, LEVELS)
    columns = [theirs[f'{name}{end}'] for end in ('-lo-80', '', '-hi-80')]
    expected = np.stack(columns, 1).reshape(2, 6, 3)
    np.testing.assert_allclose(ours.quantiles_NxLxQ, expected, rtol=1e-5)
    np.testing.assert_array_equal(ours.point_NxL, ours.quantiles_NxLxQ[..., 1])


def test_a_gap_is_interpolated():
  whole = series()[0]
  whole[10] = (whole[9] + whole[11]) / 2
  gap = whole.copy()
  gap[10] = np.nan
  each = [
    statistical.forecast('AutoETS', [x], 3, 4, LEVELS).quantiles_NxLxQ
    for x in (whole, gap)
  ]
  np.testing.assert_allclose(*each, rtol=1e-9)


def test_what_cannot_be_fitted_is_seasonal_naive(caplog):
  short = np.array([3.0, 5.0])
  with caplog.at_level('WARNING', 'absl'):
    ours = statistical.forecast('AutoTheta', [short], 4, 4, LEVELS)
  naive = baselines.seasonal_naive(short, 4, 4)
  np.testing.assert_array_equal(ours.point_NxL, naive.mean_L[None])
  np.testing.assert_array_equal(
    ours.quantiles_NxLxQ, naive.quantiles(LEVELS)[None]
  )


def test_an_unknown_name_and_a_missing_package_are_errors(monkeypatch):
  with pytest.raises(errors.InputError, match="name='ARIMA'.*AutoETS"):
    statistical.forecast('ARIMA', series(), 1, 1, LEVELS)
  monkeypatch.setattr(statistical, 'available', lambda: False)
  with pytest.raises(errors.InputError, match=r'rnn_jax\[forecast\]'):
    statistical.forecast('MSTL', series(), 1, 1, LEVELS)
