"""The forecasts that a forecaster's head corrects, against float64 NumPy."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from rnn_jax.models import series_anchors


def run(kind, z, season, horizon):
  """The forecasts of windows ...xW."""
  z_BxLxTxW = np.float32(z).reshape(1, -1, 1, z.shape[-1])
  made = jax.jit(series_anchors.forecasts, static_argnums=(0, 3, 4))(
    kind, z_BxLxTxW, np.ones(z_BxLxTxW.shape, bool), season, horizon
  )
  return np.asarray(made).reshape(*z.shape[:-1], horizon)


def seasonal_ar(z_W, season, horizon):
  """By the equation: least squares with a row for each term of the penalty."""
  S = len(z_W) // season
  z_W = np.float64(z_W[-S * season :])

  def forecast(h, J):
    k = math.ceil(h / season)
    J = min(max(J, 1), S - k)
    places = np.arange(season * (k + J - 1), S * season)
    lags = season * (k + np.arange(J))
    x = z_W[places[:, None] - lags]
    c = series_anchors.RIDGE * np.sum(x**2) / J + series_anchors.TINY
    w, *_ = np.linalg.lstsq(
      np.concatenate([x, np.sqrt(c) * np.eye(J)]),
      np.concatenate([z_W[places], np.sqrt(c) * np.eye(J)[0]]),
      rcond=None,
    )
    return w @ z_W[S * season + h - 1 - lags]

  parts = S // 4, S // 2, 3 * S // 4
  return np.array(
    [np.mean([forecast(h, J) for J in parts]) for h in range(1, horizon + 1)]
  )


@settings(max_examples=15, deadline=None)
@given(
  season=st.integers(2, 6),
  more=st.integers(0, 5),
  horizon=st.integers(1, 9),
  seed=st.integers(0, 2**31),
)
def test_the_seasonal_autoregression_is_least_squares(
  season, more, horizon, seed
):
  least = series_anchors.least_window('seasonal_ar', season, horizon)
  rng = np.random.default_rng(seed)
  z = rng.normal(size=(3, least + more))
  z[1] += 2 * np.sin(np.arange(least + more))
  z[2, : len(z[2]) // 2] = 0  # missing ones
  got = run('seasonal_ar', z, season, horizon)
  wanted = [seasonal_ar(each, season, horizon) for each in z]
  np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)


def test_no_more_seasons_are_read_than_are_worth_it():
  z = np.random.default_rng(1).normal(size=2 * (series_anchors.SEASONS + 4))
  got, wanted = run('seasonal_ar', z, 2, 3), run('seasonal_ar', z[8:], 2, 3)
  np.testing.assert_array_equal(got, wanted)


def test_the_seasonal_autoregression_sees_weeks_and_flat_windows():
  week = np.random.default_rng(0).normal(size=28)
  z = np.stack([np.tile(week, 5), np.zeros(140)])
  got = run('seasonal_ar', z, 4, 8)  # a week has seven seasons
  np.testing.assert_allclose(got[0], week[:8], atol=0.1)
  assert not got[1].any()


@pytest.mark.parametrize(
  ('kind', 'least'),
  (('season', 24), ('last', 1), ('none', 1), ('seasonal_ar', 96)),
)
def test_windows_are_as_long_as_an_anchor_reads(kind, least):
  assert series_anchors.least_window(kind, 24, 48) == least
