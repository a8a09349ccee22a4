"""Pictures of a comparison: curves, scores, memory against quality.

A variant has one colour, marker and line in all of them, by its place in the
grid. The colours are those of Okabe and Ito, which colour-blind readers can
tell apart, without the yellow, which paper swallows.
"""

import math
import pathlib
import statistics
import typing

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

from rnn_jax.experiments import costs as costs_lib  # noqa: E402
from rnn_jax.experiments import grid as grid_lib  # noqa: E402

COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#E69F00',
  '#56B4E9',
  '#000000',
)
MARKERS = 'osD^vPX'
LINES = ('-', '--', ':', '-.')
NOTE_LINES = ('--', ':', '-.')
DPI = 140
MIB = 2**20
MEMORY_LABELS = {
  'step_bytes': 'memory of a training step by the compiler (MiB)',
  'peak_memory_bytes': 'peak memory (MiB)',
}


class Style(typing.NamedTuple):
  """How a variant looks."""

  color: str
  marker: str
  linestyle: str


def draw(
  grid: grid_lib.Grid,
  summary: dict,
  rows: dict[tuple[str, int], dict],
  workdir: str,
) -> list[tuple[str, str]]:
  """Draws what there is to draw. Returns (file, what it shows) of each."""
  folder = pathlib.Path(workdir)
  looks = styles(grid)
  drawn = {
    'curves.png': (
      _curves(looks, curves(rows)),
      'validation loss against steps and seconds',
    ),
    'scores.png': (_scores(grid, looks, summary), 'scores of the variants'),
    'costs.png': (
      _costs(grid, looks, summary),
      'memory and time of a training step',
    ),
    'memory_quality.png': (
      _memory(grid, looks, summary),
      'peak memory against the main score',
    ),
  }
  kept = []
  for name, (figure, told) in drawn.items():
    (folder / name).unlink(missing_ok=True)
    if figure is not None:
      figure.savefig(folder / name, dpi=DPI, metadata={'Software': None})
      pyplot.close(figure)
      kept.append((name, told))
  return kept


def styles(grid: grid_lib.Grid) -> dict[str, Style]:
  """The look of each variant.

  Up to 28 of them, no two share colour and line, nor colour and marker.
  """
  return {
    name: Style(
      COLOURS[n % len(COLOURS)],
      MARKERS[(n + n // len(COLOURS)) % len(MARKERS)],
      LINES[n // len(COLOURS) % len(LINES)],
    )
    for n, name in enumerate(grid.variants)
  }


def curves(
  rows: dict[tuple[str, int], dict],
) -> dict[str, list[list[tuple[int, float, float]]]]:
  """{variant: [[(step, training seconds, loss), ...] of each done run]}."""
  found = {}
  for (variant, _), row in sorted(rows.items()):
    if row['status'] == 'done' and row.get('curve'):
      found.setdefault(variant, []).append([*map(tuple, row['curve'])])
  return found


def band(
  runs: list[list[tuple[int, float, float]]],
) -> list[tuple[int, float, float, float, float]]:
  """(step, mean seconds, mean, least, greatest loss) where all seeds have one.

  Seeds that stopped early would else pull the mean about.
  """
  by_step = [{step: (s, loss) for step, s, loss in run} for run in runs]
  out = []
  for step in sorted(set.intersection(*map(set, by_step))):
    seconds, losses = zip(*(run[step] for run in by_step), strict=True)
    out.append(
      (
        step,
        statistics.fmean(seconds),
        statistics.fmean(losses),
        min(losses),
        max(losses),
      )
    )
  return out


def _curves(looks, found):
  found = {name: band(found[name]) for name in looks if name in found}
  found = {name: points for name, points in found.items() if points}
  if not found:
    return None
  figure, panels = pyplot.subplots(
    1, 2, figsize=(10, 4.4), sharey=True, layout='constrained'
  )
  for axes, column in zip(panels, (0, 1), strict=True):
    for name, points in found.items():
      look, table = looks[name], list(zip(*points, strict=True))
      axes.plot(
        table[column], table[2], ms=3.5, lw=1.6, label=name, **look._asdict()
      )
      axes.fill_between(
        table[column], table[3], table[4], color=look.color, alpha=0.18, lw=0
      )
    axes.grid(alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)
  panels[0].set(xlabel='step', ylabel='validation loss')
  panels[1].set(xlabel='training seconds, mean over seeds')
  panels[0].set_title('Mean over seeds; the band is their range', fontsize=9)
  _legend(figure, panels[0])
  return figure


def _scores(grid, looks, summary):
  names = [n for n, v in summary['variants'].items() if v['done']]
  if not names:
    return None
  across = min(3, len(grid.compared))
  down = math.ceil(len(grid.compared) / across)
  figure, panels = pyplot.subplots(
    down,
    across,
    figsize=(1.6 + 3 * across, 1.1 + down * (0.9 + 0.34 * len(names))),
    squeeze=False,
    sharey=True,
    layout='constrained',
  )
  for axes, metric in zip(panels.flat, grid.compared, strict=False):
    _bars(axes, metric, names, looks, summary)
  for axes in panels.flat[len(grid.compared) :]:
    axes.set_visible(False)
  figure.get_layout_engine().set(h_pad=0.08)
  panels[0, 0].invert_yaxis()  # shared by all
  for axes in panels.flat:
    axes.tick_params(axis='y', length=0)
  if grid.notes:
    _legend(figure, *panels.flat)
  return figure


def _bars(axes, metric, names, looks, summary):
  """A panel: a bar a variant, its deviation, its seeds, published lines."""
  for n, name in enumerate(names):
    figure = summary['variants'][name]['figures'][metric.key]
    if figure['mean'] is not None:
      _bar(axes, n, figure, looks[name].color)
  for n, (label, values) in enumerate(summary['published'].items()):
    if metric.key in values:
      axes.axvline(
        values[metric.key],
        label=f'{label} (published)',
        **_note_look(label, n, looks),
      )
  _dress(axes, names, f'{metric.label} ({metric.better} is better)')


def _dress(axes, names, title):
  """What all panels of horizontal bars have."""
  axes.set_yticks(range(len(names)), names)
  axes.set_ylim(-0.6, len(names) - 0.4)
  axes.set_title(title, fontsize=9)
  axes.margins(x=0.2)
  axes.set_xlim(left=min(0, axes.get_xlim()[0]) if _negative(axes) else 0)
  axes.locator_params(axis='x', nbins=5)
  axes.tick_params(labelsize=8)
  axes.grid(alpha=0.3, axis='x')
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)


def _bar(axes, n, figure, color):
  """A variant's bar in row n, with its deviation and its mean as text."""
  axes.barh(n, figure['mean'], 0.62, color=color, alpha=0.75)
  reach = figure['mean']
  if figure['deviation'] is not None:
    axes.errorbar(
      figure['mean'], n, xerr=figure['deviation'], color='#333333', capsize=3
    )
    reach += figure['deviation']
  axes.annotate(
    f'{figure["mean"]:#.4g}',
    (max(reach, 0), n),
    xytext=(4, 0),
    textcoords='offset points',
    va='center',
    fontsize=8,
    # Above a published line, which would strike it out.
    bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.8},
    zorder=5,
  )


def _negative(axes):
  return any(patch.get_width() < 0 for patch in axes.patches)


def _note_look(label, n, looks):
  """A published figure has its variant's colour if it bears its name."""
  color = looks[label].color if label in looks else '#444444'
  return {'color': color, 'ls': NOTE_LINES[n % len(NOTE_LINES)], 'lw': 1.4}


def _costs(grid, looks, summary):
  """Bars of the memory and the time of a step, where profiles tell them."""
  keys = [cost['key'] for cost in summary['costs']]
  if costs_lib.MEMORY[0] not in keys:
    return None
  names = [n for n, v in summary['variants'].items() if v['done']]
  figure, panels = pyplot.subplots(
    1,
    2,
    figsize=(9.6, 1.4 + 0.34 * len(names)),
    sharey=True,
    layout='constrained',
  )
  for axes, key, scale, label in (
    (panels[0], costs_lib.MEMORY[0], MIB, 'memory of a step (MiB)'),
    (panels[1], costs_lib.TIME[0], 1e-3, 'time of a step (ms)'),
  ):
    for n, name in enumerate(names):
      found = summary['variants'][name]['figures'][key]
      if found['mean'] is not None:
        _bar(axes, n, _scaled(found, scale), looks[name].color)
    _dress(axes, names, f'{label}, lower is better')
  panels[0].invert_yaxis()
  return figure


def _scaled(figure, scale):
  parts = {key: figure[key] for key in ('mean', 'deviation')}
  return {key: x if x is None else x / scale for key, x in parts.items()}


def _memory(grid, looks, summary):
  metric = grid.compared[0]
  memory_key = costs_lib.first(costs_lib.MEMORY, summary['costs'])
  points = {
    name: variant['figures']
    for name, variant in summary['variants'].items()
    if None
    not in (
      variant['figures'][metric.key]['mean'],
      variant['figures'].get(memory_key, {'mean': None})['mean'],
    )
  }
  if not points:
    return None
  figure, axes = pyplot.subplots(figsize=(6.4, 4.4), layout='constrained')
  for name, figures in points.items():
    memory, score = figures[memory_key], figures[metric.key]
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
  axes.set(
    xlabel=MEMORY_LABELS[memory_key],
    ylabel=f'{metric.label} ({metric.better} is better)',
  )
  axes.set_title('Means over seeds, with their deviation', fontsize=9)
  axes.grid(alpha=0.3)
  axes.spines[['top', 'right']].set_visible(False)
  _legend(figure, axes)
  return figure


def _legend(figure, *panels):
  """One legend under all panels, where it hides nothing."""
  found = {}
  for axes in panels:
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
      found.setdefault(label, handle)
  if found:
    # Of 8 points, a letter is 5 wide; line, marker and gaps take 50.
    column = 5 * max(map(len, found)) + 50
    columns = int(72 * figure.get_figwidth() / column)
    figure.legend(
      found.values(),
      found.keys(),
      loc='outside lower center',
      ncols=max(1, min(columns, len(found))),
      fontsize=8,
      frameon=False,
    )
