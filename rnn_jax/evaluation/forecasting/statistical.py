"""AutoETS, AutoTheta and MSTL of statsforecast, an optional package.

  AutoETS    exponential smoothing, the model chosen by AICc
  AutoTheta  the best of four Theta models
  MSTL       seasonal parts by STL, AutoETS on the rest

They are fitted to one series after another. They read no missing values: a gap
is interpolated linearly, one at the start has the first reading. Where one
can't be fitted, for instance to a series of two readings, the seasonal naive
forecast takes its place, and the log says for how many.

Sources: Hyndman, Khandakar, "Automatic Time Series Forecasting: The forecast
Package for R", 2008; Fiorucci et al., "Models for optimising the theta method
and their relationship to state space models", 2016; Bandara, Hyndman,
Bergmeir, "MSTL: A Seasonal-Trend Decomposition Algorithm for Time Series with
Multiple Seasonal Patterns", 2021.
"""

import importlib.util
import warnings
from collections.abc import Sequence

import numpy as np
from absl import logging
from numpy import typing as npt

from rnn_jax import errors
from rnn_jax.evaluation.forecasting import baselines
from rnn_jax.evaluation.forecasting import forecasts as forecasts_lib
from rnn_jax.system import activity

NAMES = 'AutoETS', 'AutoTheta', 'MSTL'


def available() -> bool:
  """Returns whether statsforecast is installed."""
  return importlib.util.find_spec('statsforecast') is not None


def forecast(
  name: str,
  histories: Sequence[np.ndarray],
  horizon: int,
  season: int,
  levels_Q: npt.ArrayLike,
) -> forecasts_lib.Forecasts:
  """Returns the forecasts of one of NAMES, for a history of each series.

  Raises:
    InputError: there is no such forecaster, or statsforecast is missing.
  """
  if name not in NAMES:
    errors.refuse('name', name, f'give one of {", ".join(NAMES)}')
  if not available():
    errors.refuse('name', name, "run pip install 'rnn_jax[forecast]'")
  levels = np.asarray(levels_Q, np.float64).tolist()
  points, quantiles, failed = [], [], 0
  with activity.doing(f'fitting {name}', len(histories), 'series') as done:
    for history_L in histories:
      try:
        each = _fit(name, history_L, horizon, season, levels)
      except Exception:  # whatever its optimizers raise
        failed += 1
        naive = baselines.seasonal_naive(history_L, horizon, season)
        each = naive.mean_L, naive.quantiles(levels_Q)
      points.append(each[0])
      quantiles.append(each[1])
      done(1)
  if failed:
    logging.warning('%s: seasonal naive for %d series', name, failed)
  return forecasts_lib.Forecasts(np.stack(points), np.stack(quantiles))


def _fit(name, history_L, horizon, season, levels_Q):
  """Returns (point_L, quantiles_LxQ)."""
  from statsforecast import models  # an extra, and takes long to import

  # An interval of coverage c has the quantiles 1/2 - c/2 and 1/2 + c/2.
  covers_Q = [round(100 * abs(2 * level - 1), 6) for level in levels_Q]
  model = getattr(models, name)(season_length=season)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    answer = model.forecast(
      y=_filled(history_L), h=horizon, level=sorted({*covers_Q} - {0}) or None
    )
  columns = [
    answer['mean'] if not cover else answer[f'{_side(level)}-{cover}']
    for level, cover in zip(levels_Q, covers_Q, strict=True)
  ]
  point_L, quantiles_LxQ = answer['mean'], np.stack(columns, 1)
  if not (np.isfinite(point_L).all() and np.isfinite(quantiles_LxQ).all()):
    raise ValueError('not finite')
  return point_L, quantiles_LxQ


def _side(level):
  return 'lo' if level < 0.5 else 'hi'


def _filled(history_L):
  """Returns the history with its gaps interpolated."""
  history_L = np.asarray(history_L, np.float64)
  seen = np.flatnonzero(~np.isnan(history_L))
  return np.interp(np.arange(len(history_L)), seen, history_L[seen])
