"""Pictures of measurements in docs/plots."""

import os
import pathlib
import statistics
from collections.abc import Mapping
from collections.abc import Sequence

from benchmarks.harness import tables

TICKS = 12  # sizes that are each named on an axis
FAR = 30  # times the shortest bar: longer ones need a logarithmic axis
COLORS = 10  # of lines, before the next ones are dashed

Series = Mapping[str, Sequence[tuple[float, float]]]  # points by label


class Plots:
  """Draws into `docs`/plots, files that begin with `prefix`.

  Each picture's method returns the Markdown that shows it. Without `draw` it
  does only that.
  """

  def __init__(self, docs: str | os.PathLike, prefix: str, draw: bool = True):
    self._saves = draw
    self._folder = pathlib.Path(docs) / 'plots'
    self._prefix = prefix

  def lines(
    self, name: str, series: Series, labels: tuple[str, str], scale: str = 'log'
  ) -> str:
    """Draws (size, y) points; `scale` is that of y."""
    axes = _draw(series, labels, 'o')
    axes.set(xscale='log', yscale=scale)
    axes.grid(alpha=0.3, which='both' if scale == 'log' else 'major')
    sizes = sorted({x for points in series.values() for x, _ in points})
    if len(sizes) <= TICKS:
      axes.set_xticks(sizes, [f'{size:,}' for size in sizes], fontsize=8)
      axes.minorticks_off()
    else:
      _name_ticks(axes.xaxis)
    if scale == 'log':
      _name_ticks(axes.yaxis)
    return self._save(axes, name, ' against '.join(reversed(labels)))

  def losses(self, name: str, series: Series, labels: tuple[str, str]) -> str:
    """Draws (step, loss) points, as far up as half of the curves begin.

    What is always above that, as a run that diverges, is left out.
    """
    lowest = {label: min(y for _, y in series[label]) for label in series}
    top = statistics.median(min(points)[1] for points in series.values())
    shown = {label: series[label] for label in series if lowest[label] <= top}
    axes = _draw(shown, labels, '')
    axes.set_ylim(0.95 * min(lowest.values()), top)
    axes.grid(alpha=0.3)
    return self._save(axes, name, ' against '.join(reversed(labels)))

  def bars(self, name: str, values: Mapping[str, float], label: str) -> str:
    """Draws a bar for each name."""
    axes = _axes(7, 0.8 + 0.24 * len(values))
    bars = axes.barh(list(values), list(values.values()))
    axes.bar_label(bars, fmt=tables.digits, padding=3, fontsize=7)
    axes.set(xlabel=label)
    axes.xaxis.set_major_formatter('{x:,g}')
    if max(values.values()) > FAR * min(values.values()):
      axes.set_xscale('log')
      _name_ticks(axes.xaxis)
    axes.margins(x=0.12, y=0.01)
    axes.invert_yaxis()
    axes.tick_params(axis='y', labelsize=8)
    return self._save(axes, name, label)

  def _save(self, axes, name, title):
    file = f'{self._prefix}_{name}.png'
    if self._saves:
      self._folder.mkdir(parents=True, exist_ok=True)
      metadata = {'Software': None}
      axes.figure.savefig(self._folder / file, dpi=120, metadata=metadata)
    return f'![{title}](plots/{file})'


def _axes(width, height):
  """The axes of a new figure, whose sizes are in inches."""
  from rnn_jax import plots  # slow to load, and suites import this module

  return plots.panel((width, height))[1]


def _draw(series, labels, marker):
  axes = _axes(8.6, 4.4)
  shown = [(label, points) for label, points in series.items() if points]
  for number, (label, points) in enumerate(shown):
    axes.plot(
      *zip(*sorted(points), strict=True),
      marker=marker,
      markersize=3,
      linestyle='-' if number < COLORS else '--',
      label=label,
    )
  axes.set(xlabel=labels[0], ylabel=labels[1])
  # Beside the curves: many of them leave no corner free.
  axes.legend(fontsize=8, loc='upper left', bbox_to_anchor=(1, 1))
  return axes


def _name_ticks(axis):
  from rnn_jax import plots  # slow to load, as above

  plots.name_ticks(axis)
