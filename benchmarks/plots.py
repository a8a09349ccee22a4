"""Pictures of measurements in docs/plots."""

import pathlib

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

TICKS = 12  # sizes that are each named on an axis


class Plots:
  """Draws into `docs`/plots, files that begin with `prefix`."""

  def __init__(self, docs, prefix):
    self._folder = pathlib.Path(docs) / 'plots'
    self._prefix = prefix

  def lines(self, name, series, labels, scale='log'):
    """Draws {label: [(x, y), ...]}. Returns Markdown that shows the picture."""
    figure, axes = pyplot.subplots(figsize=(8.6, 4.4), layout='constrained')
    for label, points in series.items():
      if points:
        axes.plot(*zip(*sorted(points), strict=True), 'o-', ms=3, label=label)
    xlabel, ylabel = labels
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale='log', yscale=scale)
    axes.grid(alpha=0.3, which='both' if scale == 'log' else 'major')
    sizes = sorted({x for points in series.values() for x, _ in points})
    if len(sizes) <= TICKS:
      axes.set_xticks(sizes, [f'{size:,}' for size in sizes], fontsize=8)
      axes.minorticks_off()
    # Beside the curves: many of them leave no corner free.
    axes.legend(fontsize=8, loc='upper left', bbox_to_anchor=(1, 1))
    return self._save(figure, name, f'{ylabel} against {xlabel}')

  def bars(self, name, values, label, scale='log'):
    """Draws {name: number} beside one another. Returns Markdown."""
    height = 1.2 + 0.24 * len(values)
    figure, axes = pyplot.subplots(figsize=(7, height), layout='constrained')
    bars = axes.barh(list(values), list(values.values()))
    axes.bar_label(bars, fmt='%.3g', padding=3, fontsize=7)
    axes.set(xlabel=label, xscale=scale)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.tick_params(axis='y', labelsize=8)
    return self._save(figure, name, label)

  def _save(self, figure, name, told):
    self._folder.mkdir(parents=True, exist_ok=True)
    file = f'{self._prefix}_{name}.png'
    figure.savefig(self._folder / file, dpi=120, metadata={'Software': None})
    pyplot.close(figure)
    return f'![{told}](plots/{file})'
