"""Confidence intervals by the bootstrap, over examples.

Source: Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979; the
resampling is SciPy's.
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
