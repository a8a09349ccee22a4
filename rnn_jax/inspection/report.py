"""Writes an inspection as tables, JSON, figures and TensorBoard events.

<workdir>/inspection/    inspection.md, inspection.json and the figures
<workdir>/tensorboard/inspection/    scalars and histograms, by the step
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorboardX

from rnn_jax import plots
from rnn_jax import tables
from rnn_jax.inspection import anatomy
from rnn_jax.inspection import curves
from rnn_jax.inspection import summary
from rnn_jax.system import files

NAME = 'inspection'
DIGITS = 6  # of numbers in the JSON file
TABLES = {  # of the rows of a report: title and columns
  'parts': (
    'Gradients, updates and weights',
    ('part', 'numbers=parameters:,', 'weight=weight_norm:.3g')
    + ('gradient=gradient_norm:.3g', 'largest=gradient_norm_largest:.3g')
    + ('update=update_norm:.3g', 'ratio:.3g'),
  ),
  'gates': (
    'Gates',
    ('layer', 'gate', 'mean:.3g', '5 %=low:.3g', 'median:.3g')
    + ('95 %=high:.3g', '> .99=above:.1%', '< .01=below:.1%'),
  ),
  'half_lives': (
    'Half-life of the memory, steps',
    ('layer', 'channels', '5 %=low:.3g', 'median:.3g', '95 %=high:.3g'),
  ),
  'states': (
    'Norm of the state after a step of a row',
    ('layer', 'state', 'first:.3g', 'middle:.3g', 'last:.3g', 'largest:.3g'),
  ),
  'units': (
    'Hidden units',
    ('layer', 'of', 'units', 'dead', 'share:.1%', 'at rest=at_rest:.1%')
    + ('which=listed',),
  ),
  'experts': (
    'Experts, tokens by their even share',
    ('layer', 'experts', 'least:.3g', 'most:.3g', 'idle'),
  ),
  'flow': (
    'Gradient of the last loss, by distance',
    ('steps before=distance', 'norm:.3g'),
  ),
}

Report = Mapping[str, Any]  # see run.measure


def write(report: Report, last: dict, workdir: pathlib.Path) -> None:
  """Writes an inspection in all formats.

  Args:
    report: see run.measure.
    last: gradients, a tree of arrays, for histograms.
    workdir: the run's folder.
  """
  folder = workdir / NAME
  folder.mkdir(exist_ok=True)
  text = markdown(report)
  for name, caption in draw(report, folder):
    text += f'\n![{caption}]({name})\n'
  files.write_whole(folder / f'{NAME}.md', text)
  text = files.to_json(values(report), indent=1) + '\n'
  files.write_whole(folder / f'{NAME}.json', text)
  board = tensorboardX.SummaryWriter(str(workdir / 'tensorboard' / NAME))
  try:
    _write_board(board, report, last)
  finally:
    board.close()


def values(report: Any) -> Any:
  """Returns a report for JSON: rounded, None for what isn't finite."""
  if isinstance(report, dict):
    return {key: values(x) for key, x in report.items() if key != 'bins'}
  if isinstance(report, list):
    return [values(x) for x in report]
  if isinstance(report, float):
    return float(f'{report:.{DIGITS}g}') if math.isfinite(report) else None
  return report


def _write_board(board, report, last):
  step = report['step']
  for name, value in scalars(report).items():
    board.add_scalar(name, value, step)
  for part, named in anatomy.parts(last).items():
    for name, array in named.items():
      x = np.asarray(array, np.float32).ravel()
      if np.all(np.isfinite(x)):
        path = f'gradients/{part}/{name}'.replace(' ', '_')
        board.add_histogram(path, x, step)
  edges = summary.edges()
  for row in report['gates']:
    full = np.flatnonzero(row['bins'])
    if len(full):
      _write_gate(board, row, (full[0], full[-1] + 1), edges, step)


def _write_gate(board, row, ends, edges, step):
  """Writes the bins from the first to the last that isn't empty."""
  first, last = ends
  counts, edges = row['bins'][first:last], edges[first : last + 1]
  middles = (edges[:-1] + edges[1:]) / 2
  board.add_histogram_raw(
    f'gates/layer_{row["layer"]}/{row["gate"]}',
    min=edges[0],
    max=edges[-1],
    num=counts.sum(),
    sum=counts @ middles,
    sum_squares=counts @ middles**2,
    bucket_limits=edges[1:].tolist(),
    bucket_counts=counts.tolist(),
    global_step=step,
  )


def scalars(report: Report) -> dict[str, float]:
  """Returns {tag: number} for TensorBoard's curves."""
  tags = {}
  for row in report['parts']:
    part = row['part'].replace(' ', '_')
    for key in ('gradient_norm', 'weight_norm', 'ratio'):
      tags[f'{key}/{part}'] = row[key]
  for row in report['gates']:
    tags[f'gate_mean/layer_{row["layer"]}/{row["gate"]}'] = row['mean']
  for row in report['half_lives']:
    tags[f'half_life/layer_{row["layer"]}'] = row['median']
  for row in report['states']:
    tags[f'state_norm/layer_{row["layer"]}/{row["state"]}'] = row['last']
  for row in report['units']:
    path = f'layer_{row["layer"]}/{row["of"]}'
    tags[f'dead_share/{path}'] = row['dead'] / row['units']
  for row in report['experts']:
    tags[f'busiest_expert/layer_{row["layer"]}'] = row['most']
  return {
    name: x for name, x in tags.items() if x is not None and math.isfinite(x)
  }


def markdown(report: Report) -> str:
  """Returns the tables of a report, which are readable as text too."""
  lines = [
    f'# Inspection of step {report["step"]}\n',
    f'{report["batches"]} batches of the {report["split"]} split, '
    f'{report["tokens"]:,} predictions, loss {report["loss"]:.4f} nats, '
    f'learning rate {report["learning_rate"]:.3g}',
  ]
  if not report['recurrent']:
    lines.append(
      '\nEach step sees its whole row: no state is carried from row to row, '
      'and there is no distance in time.'
    )
  rows = {
    **report,
    'units': [*map(_counted, report['units'])],
    'flow': _octaves(report['flow']),
  }
  for key, (title, columns) in TABLES.items():
    if rows[key]:
      lines += [f'\n## {title}\n', *tables.of(rows[key], columns)]
  return '\n'.join([*lines, ''])


def _octaves(norms):
  """Returns rows of the norms by distance."""
  first = [('0', norms[0])] if norms else []
  others = [(f'{n}+', norm) for n, norm in curves.octaves(norms).items()]
  return [{'distance': n, 'norm': norm} for n, norm in first + others]


def _counted(row):
  """Returns a row of units with the share of the dead ones, and a list."""
  more = ['...'] if row['dead'] > len(row['which']) else []
  listed = ' '.join(map(str, row['which'] + more))
  return row | {'share': row['dead'] / row['units'], 'listed': listed}


def draw(report: Report, folder: pathlib.Path) -> list[tuple[str, str]]:
  """Draws the figures that have data; returns (file, caption) of each."""
  figures = {
    'gradients.png': (
      _draw_gradients(report['parts']),
      'gradients and updates by layer',
    ),
    'gates.png': (_draw_gates(report['gates']), 'gates by layer'),
    'states.png': (
      _draw_states(report['states']),
      'norm of the state over time',
    ),
    'flow.png': (
      _draw_flow(report['flow'][1:]),
      'gradient by distance in time',
    ),
  }
  return plots.save_all(figures, folder)


def _draw_gradients(rows):
  """Draws a dot per part: the gradient's norm, and the update to the weight."""
  size = 10, 1.2 + 0.3 * len(rows)
  figure, panels = plots.panels(size, 1, 2, sharey=True)
  for axes, key, title, color in (
    (panels[0, 0], 'gradient_norm', 'norm of the gradient', plots.BLUE),
    (panels[0, 1], 'ratio', '|update| / |weight|', plots.ORANGE),
  ):
    # A logarithmic axis has no place for zero.
    dots = [(row[key], n) for n, row in enumerate(rows) if row[key]]
    dots = [(x, n) for x, n in dots if math.isfinite(x)]
    if dots:
      axes.plot(*zip(*dots, strict=True), 'o', color=color)
      axes.set_xscale('log')
      axes.margins(x=0.2)
      plots.name_ticks(axes.xaxis)
    for x, n in dots:
      plots.label(axes, f'{x:.3g}', (x, n))
    plots.name_rows(axes, [row['part'] for row in rows])
    axes.set_xlabel(title)
    plots.dress(axes)
  return figure


def _draw_gates(rows):
  """Draws each gate's median and mean over its 5 % to 95 % quantiles."""
  rows = [row for row in rows if row['median'] is not None]
  if not rows:
    return None
  figure, axes = plots.panel((7, 1.2 + 0.3 * len(rows)))
  low, high, median, mean = (
    [row[key] for row in rows] for key in ('low', 'high', 'median', 'mean')
  )
  places = range(len(rows))
  axes.hlines(places, low, high, color=plots.BLUE, lw=3)
  axes.plot(median, places, 'o', color=plots.BLUE)
  axes.plot(mean, places, 'x', color=plots.ORANGE)
  names = [f'layer {row["layer"]}, {row["gate"]}' for row in rows]
  plots.name_rows(axes, names)
  axes.set_xlim(-0.02, 1.02)
  axes.set_xlabel('5 % to 95 % of values; dot: median, cross: mean')
  plots.dress(axes)
  return figure


def _draw_states(rows):
  """Draws a line per layer, in a panel per part of the state."""
  names = list(dict.fromkeys(row['state'] for row in rows))
  if not names:
    return None
  figure, panels = plots.panels((8, 0.6 + 2.6 * len(names)), len(names))
  for axes, name in zip(panels.flat, names, strict=True):
    for n, row in enumerate(row for row in rows if row['state'] == name):
      look = plots.LINES[n // 10 % len(plots.LINES)]
      axes.plot(row['norms'], look, lw=1.2, label=f'layer {row["layer"]}')
    axes.set(xlabel='step of a row', ylabel=f'norm of {name}')
    axes.legend(fontsize=8, loc='upper left', bbox_to_anchor=(1, 1))
    plots.dress(axes)
  return figure


def _draw_flow(norms):
  if not any(norms):
    return None
  figure, axes = plots.panel((7, 4))
  axes.loglog(range(1, len(norms) + 1), norms, 'o-', ms=3, color=plots.BLUE)
  axes.set(xlabel='T - t, steps', ylabel='|d loss_T / d x_t|')
  for axis in (axes.xaxis, axes.yaxis):
    plots.name_ticks(axis)
  plots.dress(axes)
  return figure
