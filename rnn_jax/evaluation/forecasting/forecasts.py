"""Forecasts of many series: a point and quantiles for each step."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Forecasts:
  """What a forecaster says of N series, L steps ahead, at Q levels.

  Attributes:
    point_NxL: one number per step, which point scores are of.
    quantiles_NxLxQ: the quantiles at levels that come beside.
  """

  point_NxL: np.ndarray
  quantiles_NxLxQ: np.ndarray
