"""The forecasts that a model has to beat: naive, seasonal naive and Naive2.

  naive           the last reading.
  seasonal naive  the last reading at the same place of the season.
  Naive2          naive on the seasonally adjusted series, as M4 has it: if the
                  autocorrelation at the season m is significant, indices of a
                  classical multiplicative decomposition are divided out before
                  and multiplied in after.

Intervals are those of a normal distribution whose deviation grows as for a
random walk: s sqrt(h) at step h, s sqrt(k + 1) after k whole seasons of the
seasonal naive, s^2 the mean square of the one-step errors in the history.

NaN marks a missing reading: the last observed one is repeated, and what a
formula needs is averaged over what is observed.

Sources: Hyndman, Athanasopoulos, "Forecasting: Principles and Practice", 3rd
edition, 2021, 3.4, 5.2, 5.5; Makridakis, Spiliotis, Assimakopoulos, "The M4
Competition", 2020. The R functions that M4 called are acf and decompose; acf
stops at 10 log10(n) lags, so that M4 finds no season in a history of fewer than
10^(m / 10) readings, which isn't done here.
"""

import dataclasses

import numpy as np
from numpy import typing as npt

from rnn_jax import errors

CRITICAL = 1.645  # of a normal distribution: 90 % on two sides
CYCLES = 3  # whole seasons that the test needs


@dataclasses.dataclass(frozen=True)
class Forecast:
  """Normal distributions of the next readings, one per step."""

  mean_L: np.ndarray
  deviation_L: np.ndarray

  def quantiles(self, levels_Q: npt.ArrayLike) -> np.ndarray:
    """Returns quantiles_LxQ at levels between 0 and 1."""
    from scipy import special  # takes long to import

    z_Q = special.ndtri(np.asarray(levels_Q, np.float64))
    return self.mean_L[:, None] + self.deviation_L[:, None] * z_Q


def naive(history_L: np.ndarray, horizon: int, season: int = 1) -> Forecast:
  """Returns the last reading for each of `horizon` steps.

  The season has no effect; all three functions have the same arguments.
  """
  history_L = _history(history_L, horizon, season)
  steps_L = np.arange(1, horizon + 1)
  deviation = _deviation(history_L, 1)
  return Forecast(
    np.full(horizon, _last(history_L)), deviation * np.sqrt(steps_L)
  )


def seasonal_naive(
  history_L: np.ndarray, horizon: int, season: int
) -> Forecast:
  """Returns the last readings of a season, repeated over `horizon` steps.

  A place of the season that was never observed has the last reading.
  """
  history_L = _history(history_L, horizon, season)
  place_L = np.arange(len(history_L), len(history_L) + horizon) % season
  last = np.array([_last(history_L[n::season]) for n in range(season)])
  last = np.where(np.isnan(last), _last(history_L), last)
  cycles_L = np.arange(horizon) // season + 1
  deviation = _deviation(history_L, season)
  return Forecast(last[place_L], deviation * np.sqrt(cycles_L))


def naive2(history_L: np.ndarray, horizon: int, season: int) -> Forecast:
  """Returns naive on the seasonally adjusted history, with the season again."""
  history_L = _history(history_L, horizon, season)
  index_m = indices(history_L, season)
  begin = len(history_L)
  adjusted = naive(history_L / index_m[np.arange(begin) % season], horizon)
  index_L = index_m[np.arange(begin, begin + horizon) % season]
  return Forecast(adjusted.mean_L * index_L, adjusted.deviation_L * index_L)


BASELINES = {
  'naive': naive,
  'seasonal naive': seasonal_naive,
  'Naive2': naive2,
}


def indices(history_L: np.ndarray, season: int) -> np.ndarray:
  """Returns the multiplicative index of each place of the season, mean 1.

  Ones if the history has no season (`seasonal`), has readings that aren't
  positive, or too few to know each index. Index n is of the steps n, n + m, ...

  The trend is the centered moving average over one season, its two ends halved
  if the season is even; an index is the mean ratio of readings to the trend.
  """
  history_L = np.asarray(history_L, np.float64)
  ones = np.ones(season)
  if not seasonal(history_L, season) or np.nanmin(history_L) <= 0:
    return ones
  weights = np.full(season + 1 - season % 2, 1 / season)
  if season % 2 == 0:
    weights[[0, -1]] /= 2
  trend = np.convolve(history_L, weights, 'valid')  # NaN near a missing reading
  half = len(weights) // 2
  ratio = np.full(len(history_L), np.nan)
  ratio[half : half + len(trend)] = history_L[half : half + len(trend)] / trend
  ratios = [ratio[n::season] for n in range(season)]
  if any(np.isnan(each).all() for each in ratios):
    return ones
  index = np.array([np.nanmean(each) for each in ratios])
  return index / index.mean()


def seasonal(history_L: np.ndarray, season: int) -> bool:
  """Returns whether a history has a season, by the test of M4 at 90 %.

  It has if |r_m| > 1.645 sqrt((1 + 2 sum_{k < m} r_k^2) / n), r_k the
  autocorrelation at lag k, and n >= 3 m.
  """
  history_L = np.asarray(history_L, np.float64)
  seen = ~np.isnan(history_L)
  count = int(seen.sum())
  if season < 2 or len(history_L) < CYCLES * season or count < 2:
    return False
  centered = np.where(seen, history_L - np.nanmean(history_L), 0)
  variance = np.sum(centered**2) / count
  if variance == 0:
    return False
  r_m = np.array(
    [
      _covariance(centered, seen, lag) / variance
      for lag in range(1, season + 1)
    ]
  )
  limit = CRITICAL * np.sqrt((1 + 2 * np.sum(r_m[:-1] ** 2)) / count)
  return bool(np.abs(r_m[-1]) > limit)


def _covariance(centered, seen, lag):
  """Returns the autocovariance; over n - lag pairs it divides by n."""
  pairs = np.sum(seen[lag:] & seen[:-lag])
  return np.sum(centered[lag:] * centered[:-lag]) / (pairs + lag)


def _history(history_L, horizon, season):
  """Returns a history in float64, with at least one reading."""
  history_L = np.asarray(history_L, np.float64)
  if horizon < 1:
    errors.refuse('horizon', horizon, 'give a number of steps of at least 1')
  if season < 1:
    errors.refuse('season', season, 'give a number of steps of at least 1')
  if history_L.ndim != 1 or np.isnan(history_L).all():
    errors.refuse(
      'history_L', history_L, 'give an array of one axis with a reading'
    )
  return history_L


def _last(history_L):
  """Returns the last observed reading; NaN if there is none."""
  seen = np.flatnonzero(~np.isnan(history_L))
  return history_L[seen[-1]] if len(seen) else np.nan


def _deviation(history_L, season):
  """Returns the root mean square of the seasonal differences; 0 without any."""
  differences = history_L[season:] - history_L[:-season]
  differences = differences[~np.isnan(differences)]
  return np.sqrt(np.mean(differences**2)) if len(differences) else 0.0
