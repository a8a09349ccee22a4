"""Pictures of measurements in docs/plots."""

import pathlib
import statistics

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

from benchmarks import tables  # noqa: E402

TICKS = 12  # sizes that are each named on an axis
FAR = 30  # times the shortest bar: longer ones need a logarithmic axis
PLAIN = 1e-4, 1e7  # a logarithmic axis between these has no powers of ten
COLORS = 10  # of lines, before the next ones are dashed


class Plots:
  """Draws into `docs`/plots, files that begin with `prefix`.

  Each picture's method returns the Markdown that shows it.
  """

  def __init__(self, docs, prefix):
    self._folder = pathlib.Path(docs) / 'plots'
    self._prefix = prefix

  def lines(self, name, series, labels, scale='log'):
    """Draws {label: [(size, y), ...]}; `scale` is that of y."""
    figure, axes = _draw(series, labels, 'o')
    axes.set(xscale='log', yscale=scale)
    axes.grid(alpha=0.3, which='both' if scale == 'log' else 'major')
    sizes = sorted({x for points in series.values() for x, _ in points})
    if len(sizes) <= TICKS:
      axes.set_xticks(sizes, [f'{size:,}' for size in sizes], fontsize=8)
      axes.minorticks_off()
    else:
      _write_out(axes.xaxis)
    if scale == 'log':
      _write_out(axes.yaxis)
    return self._save(figure, name, ' against '.join(reversed(labels)))

  def losses(self, name, series, labels):
    """Draws {label: [(step, loss), ...]}, as far up as half of them begin.

    What is always above that, as a run that diverges, is left out.
    """
    lowest = {label: min(y for _, y in series[label]) for label in series}
    top = statistics.median(min(points)[1] for points in series.values())
    shown = {label: series[label] for label in series if lowest[label] <= top}
    figure, axes = _draw(shown, labels, '')
    axes.set_ylim(0.95 * min(lowest.values()), top)
    axes.grid(alpha=0.3)
    return self._save(figure, name, ' against '.join(reversed(labels)))

  def bars(self, name, values, label):
    """Draws {name: number} beside one another."""
    height = 0.8 + 0.24 * len(values)
    figure, axes = pyplot.subplots(figsize=(7, height), layout='constrained')
    bars = axes.barh(list(values), list(values.values()))
    axes.bar_label(bars, fmt=tables.digits, padding=3, fontsize=7)
    axes.set(xlabel=label)
    axes.xaxis.set_major_formatter('{x:,g}')
    if max(values.values()) > FAR * min(values.values()):
      axes.set_xscale('log')
      _write_out(axes.xaxis)
    axes.margins(x=0.12, y=0.01)
    axes.invert_yaxis()
    axes.tick_params(axis='y', labelsize=8)
    return self._save(figure, name, label)

  def _save(self, figure, name, told):
    self._folder.mkdir(parents=True, exist_ok=True)
    file = f'{self._prefix}_{name}.png'
    figure.savefig(self._folder / file, dpi=120, metadata={'Software': None})
    pyplot.close(figure)
    return f'![{told}](plots/{file})'


def _draw(series, labels, marker):
  figure, axes = pyplot.subplots(figsize=(8.6, 4.4), layout='constrained')
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
  return figure, axes


def _write_out(axis):
  """Names the powers of ten alone, as numbers where these are short."""
  low, high = axis.get_view_interval()
  if PLAIN[0] <= low and high <= PLAIN[1]:
    axis.set_major_formatter('{x:,g}')
  axis.set_minor_formatter('')
