"""Pictures of an inspection."""

import math
import pathlib

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

DPI = 140
BLUE, ORANGE = '#0072B2', '#D55E00'
LINES = '-', '--', ':', '-.'


def draw(found: dict, folder: pathlib.Path) -> list[tuple[str, str]]:
  """Draws what there is to draw. Returns (file, what it shows) of each."""
  drawn = {
    'gradients.png': (_gradients, 'gradients and updates by layer'),
    'gates.png': (_gates, 'gates by layer'),
    'states.png': (_states, 'norm of the state over time'),
    'flow.png': (_flow, 'gradient by distance in time'),
  }
  kept = []
  for name, (make, told) in drawn.items():
    (folder / name).unlink(missing_ok=True)
    figure = make(found)
    if figure is not None:
      figure.savefig(folder / name, dpi=DPI, metadata={'Software': None})
      pyplot.close(figure)
      kept.append((name, told))
  return kept


def _gradients(found):
  """A dot a part: the gradient's norm, and the update to the weight."""
  rows = found['parts']
  figure, panels = pyplot.subplots(
    1, 2, figsize=(10, 1.2 + 0.3 * len(rows)), sharey=True, layout='constrained'
  )
  for axes, key, label, color in (
    (panels[0], 'gradient_norm', 'norm of the gradient', BLUE),
    (panels[1], 'ratio', '|update| / |weight|', ORANGE),
  ):
    _dots(axes, _of(rows, key), color)
    axes.set_yticks(range(len(rows)), _of(rows, 'part'), fontsize=8)
    axes.set_xlabel(label)
    _dress(axes)
  panels[0].set_ylim(len(rows) - 0.5, -0.5)
  return figure


def _dots(axes, values, color):
  """A dot a row on a logarithmic axis, which has no place for zero."""
  shown = [(x, n) for n, x in enumerate(values) if x and math.isfinite(x)]
  if not shown:
    return
  axes.plot(*zip(*shown, strict=True), 'o', color=color)
  for x, n in shown:
    axes.annotate(
      f'{x:.3g}',
      (x, n),
      xytext=(6, 0),
      textcoords='offset points',
      va='center',
      fontsize=8,
    )
  axes.set_xscale('log')
  axes.margins(x=0.2)
  axes.tick_params(which='minor', labelbottom=False)


def _gates(found):
  """A mark at each gate's median, a line from its 5 % to its 95 % quantile."""
  rows = [row for row in found['gates'] if row['median'] is not None]
  if not rows:
    return None
  figure, axes = pyplot.subplots(
    figsize=(7, 1.2 + 0.3 * len(rows)), layout='constrained'
  )
  axes.hlines(
    range(len(rows)), _of(rows, 'low'), _of(rows, 'high'), color=BLUE, lw=3
  )
  axes.plot(_of(rows, 'median'), range(len(rows)), 'o', color=BLUE)
  axes.plot(_of(rows, 'mean'), range(len(rows)), 'x', color=ORANGE)
  names = [f'layer {row["layer"]}, {row["gate"]}' for row in rows]
  axes.set_yticks(range(len(rows)), names, fontsize=8)
  axes.set_xlim(-0.02, 1.02)
  axes.set_xlabel('5 % to 95 % of values; dot: median, cross: mean')
  axes.set_ylim(len(rows) - 0.5, -0.5)
  _dress(axes)
  return figure


def _states(found):
  """A line a layer; a panel a part of the state."""
  names = list(dict.fromkeys(_of(found['states'], 'state')))
  if not names:
    return None
  figure, panels = pyplot.subplots(
    len(names),
    1,
    figsize=(8, 0.6 + 2.6 * len(names)),
    squeeze=False,
    layout='constrained',
  )
  for axes, name in zip(panels.flat, names, strict=True):
    rows = [row for row in found['states'] if row['state'] == name]
    for n, row in enumerate(rows):
      look = LINES[n // 10 % len(LINES)]
      axes.plot(row['norms'], look, lw=1.2, label=f'layer {row["layer"]}')
    axes.set(xlabel='step of a row', ylabel=f'norm of {name}')
    axes.legend(fontsize=8, loc='upper left', bbox_to_anchor=(1, 1))
    _dress(axes)
  return figure


def _flow(found):
  norms = found['flow'][1:]
  if not any(norms):
    return None
  figure, axes = pyplot.subplots(figsize=(7, 4), layout='constrained')
  axes.plot(range(1, len(norms) + 1), norms, 'o-', ms=3, color=BLUE)
  axes.set(xscale='log', yscale='log')
  axes.set(xlabel='T - t, steps', ylabel='|d loss_T / d x_t|')
  _dress(axes)
  return figure


def _of(rows, key):
  return [row[key] for row in rows]


def _dress(axes):
  axes.grid(alpha=0.3)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
