"""Confidence intervals by the bootstrap, over examples, groups or batches.

Tokens of a text depend on each other, so losses are drawn in blocks, the
batches; so do replies of a dialogue, which are drawn together. Sources: Efron,
"Bootstrap Methods: Another Look at the Jackknife", 1979; blocks: Künsch, "The
Jackknife and the Bootstrap for General Stationary Observations", 1989; groups:
Davison and Hinkley, "Bootstrap Methods and their Application", 1997, 3.8; the
resampling is SciPy's.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import typing as npt

RESAMPLES = 1000
LEVEL = 0.95


def percentile(
  statistic: Callable[..., float], *columns: npt.ArrayLike, seed: int = 0
) -> list[float]:
  """Returns [low, high] of a statistic of columns, one entry per example.

  The 95 % percentile interval; examples are drawn whole, so that the columns
  stay together. For one example the interval is the statistic itself.
  """
  columns = tuple(np.asarray(column) for column in columns)
  if len(columns[0]) < 2:
    return [float(statistic(*columns))] * 2
  from scipy import stats  # takes long to import

  result = stats.bootstrap(
    columns,
    statistic,
    n_resamples=RESAMPLES,
    confidence_level=LEVEL,
    method='percentile',
    paired=True,
    vectorized=False,
    random_state=np.random.default_rng(seed),
  )
  return [float(edge) for edge in result.confidence_interval]


def of_groups(
  statistic: Callable[..., float],
  groups: Sequence[str] | np.ndarray,
  *columns: npt.ArrayLike,
) -> list[float]:
  """Returns [low, high] of a statistic of sums, whose examples come in groups.

  Args:
    statistic: a function of the columns' sums.
    groups: the group of each example; examples of one are drawn together.
    *columns: what is summed, one entry per example.
  """
  _, place = np.unique(np.asarray(groups), return_inverse=True)
  sums = [np.bincount(place, weights=column) for column in columns]
  return percentile(lambda *drawn: statistic(*map(np.sum, drawn)), *sums)


def of_batches(
  task: Any, sums: Sequence[Mapping[str, float]]
) -> dict[str, list[float]]:
  """Returns {metric: [low, high]} on a split; {} for a single batch.

  Args:
    task: its `summarize` turns added sums into metrics.
    sums: one entry per batch; what predicts nothing isn't drawn.
  """
  sums = [one for one in sums if one['weight']]
  if len(sums) < 2:
    return {}
  names = tuple(sums[0])
  columns = [[one[name] for one in sums] for name in names]

  def of(metric):
    def statistic(*drawn):
      total = zip(names, map(np.sum, drawn), strict=True)
      return task.summarize(dict(total))[metric]

    return percentile(statistic, *columns)

  total = dict(zip(names, map(np.sum, columns), strict=True))
  return {metric: of(metric) for metric in task.summarize(total)}
