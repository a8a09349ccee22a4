"""Figures of a grid with axes: a line's best scores in each column.

They are drawn against the bytes of the state of a row, or else by column.
"""

import math
from typing import Any

from rnn_jax import plots
from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import grid as grid_lib


def figures(
  grid: grid_lib.Grid, summary: dict[str, Any]
) -> dict[str, tuple[plots.Figure | None, str]]:
  """Returns {file: (figure of the main score, caption)}."""
  metric, variants = grid.compared[0], summary['variants']
  cells = axes_lib.cells(grid.axes, metric._asdict(), variants)
  lines = dict.fromkeys(grid.axes.place(name).lines for name in variants)
  label = f'{metric.label} ({metric.better} is better)'
  looks = plots.looks(lines)
  states = _by_state(looks, cells, metric, variants, label)
  columns = states or _by_column(looks, cells, metric, variants, label)
  return {
    'states.png': (
      states,
      f'{metric.label} against the bytes of the state of a row',
    ),
    'columns.png': (
      None if states else columns,
      f'{metric.label} of each {grid.axes.lines} by {grid.axes.columns}',
    ),
  }


def _by_column(looks, cells, metric, variants, label):
  """A line of scores over the columns for each line of the table."""
  if len(cells) < 2:
    return None
  figure, axes = plots.panel((7.2, 4.6))
  places = {column: n for n, column in enumerate(cells)}
  for line, look in looks.items():
    points = [
      (places[column], variants[of[line].variant]['figures'][metric.key])
      for column, of in cells.items()
      if line in of
    ]
    if points:
      x, found = zip(*points, strict=True)
      y = [figure['mean'] for figure in found]
      axes.plot(x, y, ms=5, lw=1.4, label=line, **look._asdict())
  axes.set_xticks([*places.values()], [*places])
  axes.set_ylabel(label)
  plots.dress(axes)
  plots.legend_below(figure, axes)
  return figure


def _by_state(looks, cells, metric, variants, label):
  """A panel for each column: scores against the bytes of the state."""
  points = {
    column: [
      (line, figures['state_bytes']['mean'], figures[metric.key]['mean'])
      for line, found in of.items()
      if (figures := variants[found.variant]['figures']).get(
        'state_bytes', {'mean': None}
      )['mean']
    ]
    for column, of in cells.items()
  }
  points = {column: some for column, some in points.items() if some}
  if not points:
    return None
  across = min(2, len(points))
  down = math.ceil(len(points) / across)
  size = 1 + 3.6 * across, 1.2 + 2.6 * down
  figure, panels = plots.panels(size, down, across, sharex=True)
  for axes, (column, some) in zip(panels.flat, points.items(), strict=False):
    for line, x, y in some:
      look = looks[line]
      axes.plot(
        x, y, look.marker, color=look.color, ms=7, alpha=0.85, label=line
      )
    axes.set_xscale('log')
    axes.set_title(column, fontsize=9)
    axes.set_xlabel('bytes of state of a row')
    axes.set_ylabel(label, fontsize=8)
    plots.dress(axes)
  for axes in panels.flat[len(points) :]:
    axes.set_visible(False)
  plots.legend_below(figure, *panels.flat[: len(points)])
  return figure
