"""Scores of forecasts, one number per series; NaN marks a missing reading.

Letters: N series, L steps of the horizon, Q quantile levels. A missing reading
isn't scored, and a series without any scores NaN, which `mean` leaves out. A
missing forecast of a reading makes the score NaN as well, and `mean` refuses
it: no forecaster scores better for what it doesn't forecast.

Scaled scores divide by the error of the seasonal naive forecast within the
history, of season m; a constant history has no scale, and scores NaN.

Sources:
  sMAPE, OWA: Makridakis, Spiliotis, Assimakopoulos, "The M4 Competition:
    100,000 time series and 61 forecasting methods", 2020.
  MASE: Hyndman, Koehler, "Another look at measures of forecast accuracy", 2006.
  RMSSE: Makridakis, Spiliotis, Assimakopoulos, "M5 accuracy competition:
    Results, findings, and conclusions", 2022.
  MSIS: the interval score of Gneiting, Raftery, "Strictly Proper Scoring Rules,
    Prediction, and Estimation", 2007, scaled as in M4.
  Weighted quantile loss: Salinas, Flunkert, Gasthaus, Januschowski, "DeepAR:
    Probabilistic forecasting with autoregressive recurrent networks", 2020.
"""

from collections.abc import Sequence

import numpy as np
from numpy import typing as npt

from rnn_jax import errors


def smape(y_NxL: np.ndarray, forecast_NxL: np.ndarray) -> np.ndarray:
  """Returns sMAPE_N in percent, 0 to 200: mean of 200 |y - f| / (|y| + |f|).

  A step where both are 0 counts as 0.
  """
  y_NxL, forecast_NxL = _pair(y_NxL, forecast_NxL)
  error_NxL = np.abs(y_NxL - forecast_NxL)
  size_NxL = np.abs(y_NxL) + np.abs(forecast_NxL)
  return _mean(200 * error_NxL / np.where(size_NxL == 0, 1, size_NxL), y_NxL)


def mase(
  y_NxL: np.ndarray, forecast_NxL: np.ndarray, scale_N: np.ndarray
) -> np.ndarray:
  """Returns MASE_N: the mean of |y - f| / scale, of `absolute_scale`."""
  y_NxL, forecast_NxL = _pair(y_NxL, forecast_NxL)
  return _mean(np.abs(y_NxL - forecast_NxL), y_NxL) / _scale(scale_N)


def rmsse(
  y_NxL: np.ndarray, forecast_NxL: np.ndarray, scale_N: np.ndarray
) -> np.ndarray:
  """Returns RMSSE_N: the root of mean (y - f)^2 / scale, of `squared_scale`."""
  y_NxL, forecast_NxL = _pair(y_NxL, forecast_NxL)
  return np.sqrt(_mean((y_NxL - forecast_NxL) ** 2, y_NxL) / _scale(scale_N))


def owa(smape: float, mase: float, naive2: tuple[float, float]) -> float:
  """Returns OWA: half of sMAPE and of MASE, each by the mean of Naive2.

  Args:
    smape: the mean over all series.
    mase: the mean over all series.
    naive2: (sMAPE, MASE) of Naive2, means over the same series. If one is 0,
      OWA is NaN.
  """
  if not all(naive2):
    return float('nan')
  return (smape / naive2[0] + mase / naive2[1]) / 2


def quantile_loss(
  y_NxL: np.ndarray, quantiles_NxLxQ: np.ndarray, levels_Q: npt.ArrayLike
) -> np.ndarray:
  """Returns losses_NxQ, the sums over steps of 2 (q - [y < f]) (y - f).

  At level 0.5 a loss is the absolute error. `weighted_quantile_loss` divides
  their sums by `sizes`.
  """
  y_NxL, quantiles_NxLxQ = map(_array, (y_NxL, quantiles_NxLxQ))
  q_Q = _levels(levels_Q)
  expected = (*y_NxL.shape, len(q_Q))
  if quantiles_NxLxQ.shape != expected:
    errors.refuse(
      'quantiles_NxLxQ.shape',
      quantiles_NxLxQ.shape,
      f'give a forecast per series, step and level, {expected}',
    )
  error_NxLxQ = y_NxL[..., None] - quantiles_NxLxQ
  loss_NxLxQ = 2 * np.maximum(q_Q * error_NxLxQ, (q_Q - 1) * error_NxLxQ)
  return np.where(np.isnan(y_NxL)[..., None], 0, loss_NxLxQ).sum(1)


def sizes(y_NxL: np.ndarray) -> np.ndarray:
  """Returns sums_N of |y| over the observed steps."""
  return np.nansum(np.abs(_array(y_NxL)), 1)


def weighted_quantile_loss(
  losses_NxQ: np.ndarray, sizes_N: np.ndarray
) -> float:
  """Returns wQL: the sum of quantile losses by the sum of |y|, mean of levels.

  A ratio of sums over all series and steps, so that large series count more;
  NaN if every reading is 0.
  """
  return _ratio(np.sum(losses_NxQ) / np.shape(losses_NxQ)[1], np.sum(sizes_N))


def msis(
  y_NxL: np.ndarray,
  low_NxL: np.ndarray,
  high_NxL: np.ndarray,
  scale_N: np.ndarray,
  coverage: float = 0.95,
) -> np.ndarray:
  """Returns MSIS_N of intervals that should hold a share `coverage` of y.

  The mean of (u - l) + 2/a (l - y)[y < l] + 2/a (y - u)[y > u], a = 1 -
  coverage, divided by the scale of MASE, `absolute_scale`.
  """
  if not 0 < coverage < 1:
    errors.refuse('coverage', coverage, 'give a share between 0 and 1')
  y_NxL, low_NxL = _pair(y_NxL, low_NxL)
  _, high_NxL = _pair(y_NxL, high_NxL)
  missed_NxL = np.maximum(low_NxL - y_NxL, 0) + np.maximum(y_NxL - high_NxL, 0)
  score_NxL = high_NxL - low_NxL + 2 / (1 - coverage) * missed_NxL
  return _mean(score_NxL, y_NxL) / _scale(scale_N)


def coverage(
  y_NxL: np.ndarray, low_NxL: np.ndarray, high_NxL: np.ndarray
) -> np.ndarray:
  """Returns the shares_N of readings within [low, high], its edges included."""
  y_NxL, low_NxL = _pair(y_NxL, low_NxL)
  _, high_NxL = _pair(y_NxL, high_NxL)
  inside_NxL = np.asarray((low_NxL <= y_NxL) & (y_NxL <= high_NxL), np.float64)
  inside_NxL[np.isnan(low_NxL) | np.isnan(high_NxL)] = np.nan
  return _mean(inside_NxL, y_NxL)


def absolute_scale(histories: Sequence[np.ndarray], season: int) -> np.ndarray:
  """Returns scales_N for MASE and MSIS: mean |x_t - x_{t-m}| in a history."""
  return np.array([_differences(x, season, np.abs) for x in histories])


def squared_scale(histories: Sequence[np.ndarray], season: int) -> np.ndarray:
  """Returns scales_N for RMSSE: mean (x_t - x_{t-m})^2 in a history.

  M5 has season 1.
  """
  return np.array([_differences(x, season, np.square) for x in histories])


def mean(
  score_N: np.ndarray, y_NxL: np.ndarray, scale_N: np.ndarray | None = None
) -> float:
  """Returns the mean over the series that can be scored; NaN if none can.

  Args:
    score_N: a score of each series.
    y_NxL: the readings; a series without any isn't counted.
    scale_N: the scales of a scaled score; one of 0 or NaN isn't counted.

  Raises:
    InputError: a forecast of a reading is missing.
  """
  counted_N = ~np.isnan(y_NxL).all(1)
  if scale_N is not None:
    counted_N &= ~np.isnan(_scale(scale_N))
  if missing := int(np.isnan(score_N[counted_N]).sum()):
    errors.refuse(
      'forecast', np.nan, f'give a number for every step of {missing} series'
    )
  return float(np.mean(score_N[counted_N])) if counted_N.any() else np.nan


def _array(x):
  return np.asarray(x, np.float64)


def _pair(y_NxL, forecast_NxL):
  """Returns both in float64, of one shape."""
  y_NxL, forecast_NxL = map(_array, (y_NxL, forecast_NxL))
  if y_NxL.ndim != 2 or y_NxL.shape != forecast_NxL.shape:
    errors.refuse(
      'forecast_NxL.shape',
      forecast_NxL.shape,
      f'give one per series and step of y_NxL, which has {y_NxL.shape}',
    )
  return y_NxL, forecast_NxL


def _levels(levels_Q):
  """Returns the levels of quantiles in float64."""
  levels_Q = _array(levels_Q)
  if levels_Q.ndim != 1 or not np.all((levels_Q > 0) & (levels_Q < 1)):
    errors.refuse('levels_Q', levels_Q, 'give levels between 0 and 1')
  return levels_Q


def _mean(value_NxL, y_NxL):
  """Returns the means over observed steps; NaN where there is none."""
  seen_NxL = ~np.isnan(y_NxL)
  total_N = np.where(seen_NxL, value_NxL, 0).sum(1)
  count_N = seen_NxL.sum(1)
  return np.where(count_N > 0, total_N / np.maximum(count_N, 1), np.nan)


def _scale(scale_N):
  """Returns the scales, with NaN for those that are 0."""
  scale_N = _array(scale_N)
  return np.where(scale_N > 0, scale_N, np.nan)


def _differences(history_L, season, size):
  """Returns the mean size of the observed seasonal differences, or NaN."""
  if season < 1:
    errors.refuse('season', season, 'give a number of steps of at least 1')
  history_L = _array(history_L)
  differences = size(history_L[season:] - history_L[:-season])
  differences = differences[~np.isnan(differences)]
  return differences.mean() if len(differences) else np.nan


def _ratio(a, b):
  return float(a / b) if b > 0 else float('nan')
