"""Figures of a comparison: curves, scores, costs, memory against quality.

A variant has the same color, marker and line in all of them, by its place in
the grid.
"""

import math
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from rnn_jax import plots
from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import costs as costs_lib
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import line_plots
from rnn_jax.experiments import records

MIB = 2**20
MEMORY_LABELS = {
  'step_bytes': 'memory of a training step by the compiler (MiB)',
  'peak_memory_bytes': 'peak memory of the process (MiB)',
}

# (step, training seconds, loss); without seconds if other work ran meanwhile.
Curve = list[tuple[int, float | None, float]]


def draw(
  grid: grid_lib.Grid,
  summary: dict[str, Any],
  rows: records.Rows,
  workdir: str | pathlib.Path,
) -> list[tuple[str, str]]:
  """Draws the figures that have data; returns (file, caption) of each.

  A single variant has curves, and nothing to compare. With axes the figure is
  of lines: their scores against their states, or else by column.
  """
  if grid.axes != axes_lib.Axes(grid.axes.lines):
    return plots.save_all(
      line_plots.figures(grid, summary), pathlib.Path(workdir)
    )
  looks = plots.looks(grid.variants)
  figures = {
    'curves.png': (
      _curves(looks, curves(rows)),
      'validation loss against steps and seconds',
    ),
  }
  if len(grid.variants) > 1:
    figures |= {
      'scores.png': (_scores(grid, looks, summary), 'scores of the variants'),
      'costs.png': (
        _costs(looks, summary),
        'memory and time of a training step',
      ),
      'memory_quality.png': (
        _memory(grid, looks, summary),
        'memory against the main score',
      ),
    }
  return plots.save_all(figures, pathlib.Path(workdir))


def curves(rows: records.Rows) -> dict[str, list[Curve]]:
  """Returns {variant: the curve of each finished run}."""
  by_variant = {}
  for (variant, _), row in sorted(rows.items()):
    if row['status'] == 'done' and row.get('curve'):
      by_variant.setdefault(variant, []).append([*map(tuple, row['curve'])])
  return by_variant


def band(
  runs: list[Curve],
) -> list[tuple[int, float | None, float, float, float]]:
  """Returns (step, mean seconds if all are known, mean, least, greatest loss).

  Only of steps where all seeds have a loss: seeds that stopped early would
  pull the mean about.
  """
  by_step = [{step: (s, loss) for step, s, loss in run} for run in runs]
  points = []
  for step in sorted(set.intersection(*map(set, by_step))):
    seconds, losses = zip(*(run[step] for run in by_step), strict=True)
    mean = statistics.fmean(losses)
    spent = None if None in seconds else statistics.fmean(seconds)
    points.append((step, spent, mean, min(losses), max(losses)))
  return points


def _curves(looks, by_variant):
  bands = {name: band(by_variant[name]) for name in looks if name in by_variant}
  bands = {name: points for name, points in bands.items() if points}
  if not bands:
    return None
  figure, ((by_step, by_time),) = plots.panels((10, 4.4), 1, 2, sharey=True)
  for name, points in bands.items():
    steps, seconds, mean, low, high = zip(*points, strict=True)
    for axes, x in ((by_step, steps), (by_time, seconds)):
      if None in x:
        continue
      axes.plot(x, mean, ms=3.5, lw=1.6, label=name, **looks[name]._asdict())
      axes.fill_between(x, low, high, color=looks[name].color, alpha=0.18, lw=0)
  by_step.set(xlabel='step', ylabel='validation loss')
  by_time.set(xlabel='training seconds, with compilation')
  longest = max(point[1] or 0 for points in bands.values() for point in points)
  by_time.set_xlim(0, 1.05 * longest or 1)
  if any(len(runs) > 1 for runs in by_variant.values()):
    figure.suptitle('Means over seeds; the band is their range', fontsize=9)
  for axes in (by_step, by_time):
    plots.dress(axes)
  plots.legend_below(figure, by_step)
  return figure


def _finished(summary):
  return [name for name, v in summary['variants'].items() if v['done']]


def _scores(grid, looks, summary):
  names = _finished(summary)
  if not names:
    return None
  across = min(3, len(grid.compared))
  down = math.ceil(len(grid.compared) / across)
  size = 1.6 + 3 * across, 1.1 + down * (0.9 + 0.34 * len(names))
  figure, panels = plots.panels(size, down, across, sharey=True)
  for axes, metric in zip(panels.flat, grid.compared, strict=False):
    values = {n: summary['variants'][n]['figures'][metric.key] for n in names}
    title = f'{metric.label} ({metric.better} is better)'
    _bars(axes, values, looks, title)
    for n, (label, published) in enumerate(summary['published'].items()):
      if metric.key in published:
        # A published figure has the color of the variant of its name.
        color = looks[label].color if label in looks else '#444444'
        axes.axvline(
          published[metric.key],
          label=f'{label} (published)',
          color=color,
          ls=plots.LINES[1:][n % 3],
          lw=1.4,
        )
  for axes in panels.flat[len(grid.compared) :]:
    axes.set_visible(False)
  figure.get_layout_engine().set(h_pad=0.08)
  if grid.notes:
    plots.legend_below(figure, *panels.flat)
  return figure


def _bars(axes, values: Mapping[str, Mapping[str, Any]], looks, title, scale=1):
  """Draws each variant's mean as a bar, with its deviation."""
  for n, (name, figure) in enumerate(values.items()):
    if figure['mean'] is None:
      continue
    mean, deviation = figure['mean'] / scale, figure['deviation']
    axes.barh(n, mean, 0.62, color=looks[name].color, alpha=0.75)
    end = mean
    if deviation is not None:
      axes.errorbar(mean, n, xerr=deviation / scale, color='#333333', capsize=3)
      end += deviation / scale
    # Above a published line, which would cross it out.
    box = {'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.8}
    plots.label(axes, f'{mean:#.4g}', (max(end, 0), n), bbox=box, zorder=5)
  plots.name_rows(axes, [*values])
  axes.set_title(title, fontsize=9)
  axes.margins(x=0.2)
  negative = any(patch.get_width() < 0 for patch in axes.patches)
  axes.set_xlim(left=min(0, axes.get_xlim()[0]) if negative else 0)
  axes.locator_params(axis='x', nbins=5)
  axes.tick_params(labelsize=8)
  axes.tick_params(axis='y', length=0)
  plots.dress(axes, 'x')


def _costs(looks, summary):
  """Bars of the memory and the time of a step, if the runs were profiled."""
  memory, time = costs_lib.MEMORY[0], costs_lib.TIME[0]
  known = [cost['key'] for cost in summary['costs']]
  if memory not in known:
    return None
  wanted = [
    (key, scale, label)
    for key, scale, label in (
      (memory, MIB, 'memory of a step (MiB)'),
      (time, 1e-3, 'time of a step (ms)'),
    )
    if key in known
  ]
  names = _finished(summary)
  size = 4.8 * len(wanted), 1.4 + 0.34 * len(names)
  figure, panels = plots.panels(size, 1, len(wanted), sharey=True)
  for axes, (key, scale, label) in zip(panels[0], wanted, strict=True):
    values = {n: summary['variants'][n]['figures'][key] for n in names}
    _bars(axes, values, looks, f'{label}, lower is better', scale)
  return figure


def _memory(grid, looks, summary):
  metric = grid.compared[0]
  key = costs_lib.first(costs_lib.MEMORY, summary['costs'])
  points = {}
  for name, variant in summary['variants'].items():
    memory = variant['figures'].get(key, {'mean': None})
    score = variant['figures'][metric.key]
    if None not in (memory['mean'], score['mean']):
      points[name] = memory, score
  if not points:
    return None
  figure, axes = plots.panel((6.4, 4.4))
  for name, (memory, score) in points.items():
    axes.errorbar(
      memory['mean'] / MIB,
      score['mean'],
      xerr=(memory['deviation'] or 0) / MIB or None,
      yerr=score['deviation'],
      fmt=looks[name].marker,
      color=looks[name].color,
      ms=8,
      capsize=3,
      label=name,
    )
  axes.margins(0.15)
  axes.set_xlabel(MEMORY_LABELS[key])
  axes.set_ylabel(f'{metric.label} ({metric.better} is better)')
  if any(figure['deviation'] for pair in points.values() for figure in pair):
    axes.set_title('Means over seeds, with their deviation', fontsize=9)
  plots.dress(axes)
  plots.legend_below(figure, axes)
  return figure
