"""The scale of a series, fitted on its training part: y = (x - loc) / scale.

    window           scale = mean |x|, loc = 0; at each step the model also
                     subtracts the mean of its window and divides by its spread
    standard_window  loc = mean, scale = standard deviation; a step does the
                     same
    mean_abs         scale = mean |x|, loc = 0
    standard         loc = mean, scale = standard deviation
    robust           loc = median, scale = the middle half's width / 1.349, the
                     standard deviation of a normal distribution
    counts           y = x, of whole numbers from 0 on; a step does the same
    none             y = x

With `log` x is the logarithm of a reading. Means are over observed readings; a
scale of 0, as of a constant series, becomes 1. Everything is float64: the
inverse is exact but for rounding. What was fitted is kept by the series' name
in the run's tokenizer.json; a series that the run doesn't know is scaled by its
own history.
Of several targets each has its own.
"""

from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib

EQUAL = 1e-9  # a spread that is rounding, relative to the mean
NORMAL = 1.349  # standard deviations in the middle half of a normal variable


class Scale(NamedTuple):
  """y = (x - loc) / scale, x a reading or its logarithm.

  `loc` and `scale` are numbers, or arrays of T targets, the readings' last
  axis.
  """

  loc: Any = 0.0
  scale: Any = 1.0
  log: bool = False

  def apply(self, readings: np.ndarray) -> np.ndarray:
    """Returns scaled readings, float64; NaN stays NaN."""
    x = np.asarray(readings, np.float64)
    x = np.log(x) if self.log else x
    return (x - self.loc) / self.scale

  def invert(self, y: np.ndarray) -> np.ndarray:
    """Returns readings, float64."""
    x = np.asarray(y, np.float64) * self.scale + self.loc
    return np.exp(x) if self.log else x


def fit(kind: str, log: bool, readings_N: np.ndarray) -> Scale:
  """Returns the scale of a series, from its training part.

  Args:
    kind: one of tokenizer.SCALINGS.
    log: whether the logarithm is scaled.
    readings_N: float64, positive ones if `log`; NaN is missing.
  """
  x = readings_N[~np.isnan(readings_N)]
  x = np.log(x) if log else x
  if kind in ('counts', 'none') or not len(x):
    return Scale(log=log)
  if kind in ('standard', 'standard_window'):
    loc, scale = np.mean(x), np.std(x)
  elif kind == 'robust':
    low, loc, high = np.quantile(x, (0.25, 0.5, 0.75))
    scale = (high - low) / NORMAL
  else:
    loc, scale = 0.0, np.mean(np.abs(x))
  usable = np.isfinite(scale) and scale > np.finfo(np.float64).tiny
  return Scale(float(loc), float(scale) if usable else 1.0, log)


def fit_covariate(values_N: np.ndarray) -> Scale:
  """Returns the scale of a covariate, from its training part; NaN is missing.

  It is the mean and the standard deviation. What has only 0 and 1 isn't scaled,
  and a constant is divided by its size, so that a change is a part of it.
  """
  x = values_N[~np.isnan(values_N)]
  if not np.setdiff1d(x, (0, 1)).size:
    return Scale()
  size = np.max(np.abs(x))
  loc, scale = np.mean(x / size), np.std(x / size)
  scale = scale if scale > EQUAL * abs(loc) else abs(loc)
  return Scale(float(loc * size), float(scale * size))


def of(
  scales: tokenizer_lib.Scales, name: str, history_NxT: np.ndarray
) -> Scale:
  """Returns a series' scale in a run; of an unknown one, from its history.

  The scale is that of each target.

  Raises:
    InputError: a reading has no logarithm, and the run needs it.
  """
  if scales.log and (history_NxT <= 0).any():
    errors.refuse(
      'data.log',
      True,
      f'series {name!r} has the reading {np.nanmin(history_NxT):g}: only '
      'positive numbers have a logarithm: correct it, or train with '
      'data.log=False',
    )
  if name in scales.fitted:
    loc_T, scale_T = np.reshape(scales.fitted[name], (-1, 2)).T
    return Scale(loc_T, scale_T, scales.log)
  return of_targets(scales.scaling, scales.log, history_NxT)


def of_targets(kind: str, log: bool, readings_NxT: np.ndarray) -> Scale:
  """Returns the scale of each target; arguments as of `fit`."""
  each = [fit(kind, log, readings_N) for readings_N in readings_NxT.T]
  loc_T, scale_T = np.array([scale[:2] for scale in each]).T
  return Scale(loc_T, scale_T, log)
