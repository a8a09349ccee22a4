"""A fan chart: the end of a history, the median, and intervals around it."""

import pathlib
from collections.abc import Sequence

import numpy as np

from rnn_jax import plots
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.inference import forecast_rows

PANELS = 6  # series of a figure, at most
HISTORY = 3  # horizons of the history that are shown


def draw(
  panel: panel_lib.Panel,
  forecasts: Sequence[forecast_rows.Forecast],
  path: str | pathlib.Path,
) -> None:
  """Draws the first PANELS series, or targets, with their forecasts to a file.

  Args:
    panel: the histories.
    forecasts: of each series.
    path: of the figure.
  """
  shown = [
    (n, target, forecast.of(name) if name else forecast)
    for n, forecast in enumerate(forecasts[:PANELS])
    for target, name in enumerate(dict.fromkeys(forecast.targets) or [''])
  ][:PANELS]
  figure, axes = plots.panels((7, 2.4 * len(shown)), len(shown), 1)
  for own, each in zip(axes[:, 0], shown, strict=True):
    _draw(own, panel, *each)
  # Above the panel, where no line is.
  place = {'loc': 'lower right', 'bbox_to_anchor': (1, 1), 'ncols': 2}
  axes[0, 0].legend(**place, frameon=False)
  plots.save(figure, pathlib.Path(path))


def _draw(axes, panel, n, target, forecast):
  values_N = panel.series[n].values_NxT[:, target]
  steps = len(forecast.times)
  first = max(len(values_N) - HISTORY * steps, 0)
  past = np.arange(first, len(values_N))
  future = np.arange(len(values_N), len(values_N) + steps)
  axes.plot(past, values_N[first:], color='k', linewidth=1, label='readings')
  count = len(forecast.levels)
  pairs = [(n, count - 1 - n) for n in range(count // 2)]
  for low, high in pairs:
    axes.fill_between(
      future,
      forecast.quantiles_HxQ[:, low],
      forecast.quantiles_HxQ[:, high],
      color=plots.BLUE,
      alpha=0.6 / max(len(pairs), 1),
      linewidth=0,
    )
  axes.plot(future, forecast.point_H, color=plots.BLUE, label='forecast')
  places = np.linspace(first, len(values_N) + steps - 1, 4).astype(int)
  axes.set_xticks(places, panel.times(n, places))
  axes.set_title(' '.join([forecast.name, *{*forecast.targets}]))
  plots.dress(axes, 'y')
