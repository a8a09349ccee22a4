"""What is forecast of a series, and its rows in a table."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import tables


@dataclasses.dataclass(frozen=True)
class Forecast:
  """Forecasts of the readings after a series.

  Attributes:
    name: of the series.
    times: of the readings, as text; of several targets one after the other.
    levels: of the quantiles.
    quantiles_HxQ: float64, ascending.
    point_H: float64, the median, or what head 'point' predicts.
    paths_PxH: float64, of which the quantiles are; None: none were drawn.
    targets: the column of each reading, of a run with data.targets.
  """

  name: str
  times: list[str]
  levels: tuple[float, ...]
  quantiles_HxQ: np.ndarray
  point_H: np.ndarray
  paths_PxH: np.ndarray | None = None
  targets: tuple[str, ...] = ()

  def of(self, target: str) -> 'Forecast':
    """Returns the forecast of one target."""
    own = [n for n, name in enumerate(self.targets) if name == target]
    if not own:
      names = tuple(dict.fromkeys(self.targets))
      errors.refuse('target', target, f'give one of {names!r}')
    return dataclasses.replace(
      self,
      times=[self.times[n] for n in own],
      quantiles_HxQ=self.quantiles_HxQ[own],
      point_H=self.point_H[own],
      targets=(target,) * len(own),
    )


def rows(
  forecasts: Iterable[Forecast], id: str = tables.ID, time: str = tables.TIME
) -> list[dict[str, Any]]:
  """Returns a row for each reading: its series, its time, its quantiles.

  `id` and `time` name these columns; the quantile of level 0.1 is 'q0.1', and
  the first drawn path is 'path1'. Of several targets 'target' has the column's
  name.
  """
  return [
    {id: each.name, time: when}
    | ({'target': each.targets[n]} if each.targets else {})
    | {
      f'q{level:g}': float(x) for level, x in zip(each.levels, own, strict=True)
    }
    | {f'path{place}': float(x) for place, x in enumerate(drawn, 1)}
    for each in forecasts
    for n, (when, own, drawn) in enumerate(
      zip(each.times, each.quantiles_HxQ, _drawn(each), strict=True)
    )
  ]


def _drawn(forecast):
  """Returns the drawn readings of each time."""
  if forecast.paths_PxH is None:
    return [()] * len(forecast.times)
  return forecast.paths_PxH.T
