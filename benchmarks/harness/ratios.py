"""Ratios of times that were measured in turns, and how far noise reaches.

    ratio = median over rounds of (seconds of the case / seconds of its base)

with the 95 % interval of that median by the bootstrap (Efron, "Bootstrap
Methods: Another Look at the Jackknife", 1979). In every round a reference step
runs first and last. The floor is how far from 1 the interval of the ratio of
these two reaches: what isn't farther from 1 than that may be noise.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
FEW = 4  # rounds: their extremes are the interval


class Ratio(NamedTuple):
  """The median ratio of the rounds, and its interval."""

  ratio: float
  low: float
  high: float
  rounds: int

  @property
  def width(self) -> float:
    """How far the interval reaches from the median, a share of it."""
    return max(self.high - self.ratio, self.ratio - self.low) / self.ratio

  @property
  def floor(self) -> float:
    """How far from 1 the interval reaches."""
    return max(abs(self.high - 1), abs(self.low - 1))


def of(seconds: Sequence[float], base: Sequence[float]) -> Ratio:
  """The ratio of times of the same rounds, at least one."""
  from scipy import stats  # takes long to import

  rounds = min(len(seconds), len(base))
  ratios = np.divide(seconds[:rounds], base[:rounds])
  median = statistics.median(ratios.tolist())
  low, high = ratios.min(), ratios.max()
  if rounds > FEW and low < high:
    low, high = stats.bootstrap(
      (ratios,),
      np.median,
      confidence_level=CONFIDENCE,
      method='percentile',
      rng=np.random.default_rng(0),
    ).confidence_interval
  return Ratio(median, float(low), float(high), rounds)
