"""Confidence intervals by the bootstrap, over examples or batches.

Tokens of a text depend on each other, so that a language model's are drawn in
blocks, its batches. Sources: Efron, "Bootstrap Methods: Another Look at the
Jackknife", 1979; blocks: Künsch, "The Jackknife and the Bootstrap for General
Stationary Observations", 1989; the resampling is SciPy's.
"""

from collections.abc import Callable

import numpy as np
from scipy import stats

RESAMPLES = 1000
LEVEL = 0.95


def percentile(
  statistic: Callable[..., float], *columns, seed: int = 0
) -> list[float]:
  """Returns [low, high] of a statistic of columns, an entry an example.

  The 95 % percentile interval; examples are drawn whole, so that the columns
  stay together. Of one example the interval is the statistic itself.
  """
  columns = tuple(np.asarray(column) for column in columns)
  if len(columns[0]) < 2:
    return [float(statistic(*columns))] * 2
  found = stats.bootstrap(
    columns,
    statistic,
    n_resamples=RESAMPLES,
    confidence_level=LEVEL,
    method='percentile',
    paired=True,
    vectorized=False,
    random_state=np.random.default_rng(seed),
  )
  return [float(edge) for edge in found.confidence_interval]


def of_batches(task, sums: list[dict[str, float]]) -> dict[str, list[float]]:
  """Returns {metric: [low, high]} of a language model on a split.

  Args:
    task: whose `summarize` makes metrics of summed sums.
    sums: an entry a batch.
  """
  names = tuple(sums[0])
  columns = [[one[name] for one in sums] for name in names]

  def of(metric):
    def statistic(*drawn):
      total = zip(names, map(np.sum, drawn), strict=True)
      return task.summarize(dict(total))[metric]

    return percentile(statistic, *columns)

  total = dict(zip(names, map(np.sum, columns), strict=True))
  return {metric: of(metric) for metric in task.summarize(total)}
