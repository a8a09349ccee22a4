"""Augmentation: a series as training reads it, drawn anew in each epoch.

    time      readings at s_0 = 0 < s_1 < ... < s_{L-1} = L - 1, between two of
              them on a line; the speed s_t - s_{t-1} is exp(data.warp e) at
              KNOTS places, e normal, and between them on a line, too
    offset    data.offset l_c e_c is added to all readings of channel c

l_c is the standard deviation of the training series' means: where all are
alike, as of normalized series, nothing is added. So a series may be faster in
places or at another level, and keeps its class. A reading between two of which
one is missing is missing. Source: Um et al., "Data Augmentation of Wearable
Sensor Data for Parkinson's Disease Monitoring using Convolutional Neural
Networks", 2017.
"""

from collections.abc import Sequence

import numpy as np

KNOTS = 4


class Augmentation:
  """Varies series of a training set."""

  def __init__(
    self, warp: float, offset: float, series: Sequence[np.ndarray]
  ) -> None:
    """Measures how far the levels of series are apart.

    Args:
      warp: standard deviation of the logarithm of the speed.
      offset: standard deviation of what is added, in that of the levels.
      series: scaled readings LxC of each.
    """
    self._warp = warp
    means_NxC = np.array([_means(each) for each in series])
    self._offset_C = offset * np.nan_to_num(_spread(means_NxC))

  def apply(
    self,
    values_LxC: np.ndarray,
    targets_T: np.ndarray,
    rng: np.random.Generator,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (readings, targets) as training has them; `rng` draws.

    Targets of steps are those of the nearest time; the only one stays.
    """
    L = len(values_LxC)
    if self._warp and L > 2:
      speed_K = np.exp(self._warp * rng.standard_normal(KNOTS))
      time_L = times(speed_K, L)
      values_LxC = between(values_LxC, time_L)
      if len(targets_T) == L:
        targets_T = targets_T[np.rint(time_L).astype(int)]
    offset_C = self._offset_C * rng.standard_normal(len(self._offset_C))
    return (values_LxC + offset_C[None]).astype(np.float32), targets_T


def times(speed_K: np.ndarray, L: int) -> np.ndarray:
  """Returns the times of L > 2 steps, from 0 to L - 1.

  Args:
    speed_K: how fast time passes at K places, the first step's and the last's
      among them.
    L: the number of steps.
  """
  places = np.linspace(0, len(speed_K) - 1, L - 1)
  steps = np.interp(places, np.arange(len(speed_K)), speed_K)
  time_L = np.concatenate([[0.0], np.cumsum(steps)])
  return time_L * ((L - 1) / time_L[-1])


def between(values_LxC: np.ndarray, time_L: np.ndarray) -> np.ndarray:
  """Returns the readings at other times, on lines between those that are."""
  before = np.minimum(time_L.astype(int), len(values_LxC) - 2)
  part_Lx1 = (time_L - before)[:, None]
  a, b = values_LxC[before], values_LxC[before + 1]
  on_line = (1 - part_Lx1) * a + part_Lx1 * b
  # Where a reading's own time is drawn, its neighbour doesn't matter.
  return np.where(part_Lx1 == 0, a, np.where(part_Lx1 == 1, b, on_line))


def _means(values_LxC):
  """Returns the mean of what is observed of each channel; NaN: nothing is."""
  observed = ~np.isnan(values_LxC)
  count_C = observed.sum(0)
  total_C = np.where(observed, values_LxC, 0).sum(0, dtype=np.float64)
  return np.where(count_C > 0, total_C / np.maximum(count_C, 1), np.nan)


def _spread(means_NxC):
  """Returns the standard deviation of each channel's means, NaN left out."""
  mean_C = _means(means_NxC)
  return np.sqrt(_means(np.square(means_NxC - mean_C[None])))
