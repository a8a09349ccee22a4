"""An inspection for a reader: tables, JSON, pictures, TensorBoard.

<workdir>/inspection/    inspection.md, inspection.json and the pictures
<workdir>/tensorboard/inspection/    scalars and histograms, by the step
"""

import json
import math
import pathlib
from typing import Any

import numpy as np
import tensorboardX

from rnn_jax import files
from rnn_jax.inspection import anatomy
from rnn_jax.inspection import curves
from rnn_jax.inspection import plots
from rnn_jax.inspection import summary
from rnn_jax.profiling import report as tables

NAME = 'inspection'
DIGITS = 6  # of numbers in the JSON file


def write(found: dict, last: dict, workdir: pathlib.Path) -> None:
  """Writes an inspection in all forms.

  Args:
    found: the report, see run.look.
    last: gradients, a tree of arrays, for histograms.
    workdir: the run's folder.
  """
  folder = workdir / NAME
  folder.mkdir(exist_ok=True)
  text = markdown(found)
  for name, told in plots.draw(found, folder):
    text += f'\n![{told}]({name})\n'
  files.write_whole(folder / f'{NAME}.md', text)
  told = json.dumps(values(found), indent=1) + '\n'
  files.write_whole(folder / f'{NAME}.json', told)
  board = tensorboardX.SummaryWriter(str(workdir / 'tensorboard' / NAME))
  try:
    _write_board(board, found, last)
  finally:
    board.close()


def values(found: Any) -> Any:
  """Returns a report as JSON holds it: rounded, None where not finite."""
  if isinstance(found, dict):
    return {key: values(x) for key, x in found.items() if key != 'bins'}
  if isinstance(found, list):
    return [values(x) for x in found]
  if isinstance(found, float):
    return float(f'{found:.{DIGITS}g}') if math.isfinite(found) else None
  return found


def _write_board(board, found, last):
  step = found['step']
  for name, value in scalars(found).items():
    board.add_scalar(name, value, step)
  for part, named in anatomy.parts(last).items():
    for name, array in named.items():
      x = np.asarray(array, np.float32).ravel()
      if np.all(np.isfinite(x)):
        path = f'gradients/{part}/{name}'.replace(' ', '_')
        board.add_histogram(path, x, step)
  edges = summary.edges()
  for row in found['gates']:
    taken = np.flatnonzero(row['bins'])
    if len(taken):
      _write_gate(board, row, (taken[0], taken[-1] + 1), edges, step)


def _write_gate(board, row, taken, edges, step):
  """The bins from the first to the last that is not empty."""
  first, last = taken
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


def scalars(found: dict) -> dict[str, float]:
  """Returns {tag: number} of what TensorBoard shows as curves."""
  told = {}
  for row in found['parts']:
    part = row['part'].replace(' ', '_')
    for key in ('gradient_norm', 'weight_norm', 'ratio'):
      told[f'{key}/{part}'] = row[key]
  for row in found['gates']:
    told[f'gate_mean/layer_{row["layer"]}/{row["gate"]}'] = row['mean']
  for row in found['half_lives']:
    told[f'half_life/layer_{row["layer"]}'] = row['median']
  for row in found['states']:
    told[f'state_norm/layer_{row["layer"]}/{row["state"]}'] = row['last']
  for row in found['units']:
    path = f'layer_{row["layer"]}/{row["of"]}'
    told[f'dead_share/{path}'] = row['dead'] / row['units']
  return {
    name: x for name, x in told.items() if x is not None and math.isfinite(x)
  }


def markdown(found: dict) -> str:
  """Returns the tables of a report, which read as text as well."""
  sections = (
    ('Gradients, updates and weights', _parts(found['parts'])),
    ('Gates', _gates(found['gates'])),
    ('Half-life of the memory, steps', _half_lives(found['half_lives'])),
    ('Norm of the state behind a step of a row', _states(found['states'])),
    ('Hidden units', _units(found['units'])),
    ('Gradient of the last loss, by distance', _flow(found['flow'])),
  )
  lines = [
    f'# Step {found["step"]}, from inside\n',
    f'{found["batches"]} batches of the {found["split"]} split, '
    f'{found["tokens"]:,} predictions, loss {found["loss"]:.4f} nats, '
    f'learning rate {found["learning_rate"]:.3g}',
  ]
  if not found['recurrent']:
    lines.append(
      '\nEach step sees all of its row: there is no state, and no distance in '
      'time to tell of.'
    )
  for title, table in sections:
    if table:
      lines += [f'\n## {title}\n', *table]
  return '\n'.join([*lines, ''])


def _parts(rows):
  header = 'part', 'numbers', 'weight', 'gradient', 'largest', 'update', 'ratio'
  keys = 'weight_norm', 'gradient_norm', 'gradient_norm_largest', 'update_norm'
  cells = [
    [row['part'], f'{row["parameters"]:,}', *_told(row, *keys, 'ratio')]
    for row in rows
  ]
  return tables.table(header, cells)


def _gates(rows):
  header = 'layer', 'gate', 'mean', '5 %', 'median', '95 %', '> .99', '< .01'
  return _table(
    header,
    [
      [str(row['layer']), row['gate']]
      + _told(row, 'mean', 'low', 'median', 'high')
      + [f'{row[key]:.1%}' for key in ('above', 'below')]
      for row in rows
    ],
  )


def _half_lives(rows):
  cells = [
    [str(row['layer']), str(row['channels'])]
    + _told(row, 'low', 'median', 'high')
    for row in rows
  ]
  return _table(('layer', 'channels', '5 %', 'median', '95 %'), cells)


def _states(rows):
  keys = 'first', 'middle', 'last', 'largest'
  cells = [
    [str(row['layer']), row['state'], *_told(row, *keys)] for row in rows
  ]
  return _table(('layer', 'state', *keys), cells)


def _units(rows):
  header = 'layer', 'of', 'units', 'dead', 'share', 'at rest', 'which'
  return _table(
    header,
    [
      [str(row['layer']), row['of'], str(row['units']), str(row['dead'])]
      + [f'{row["dead"] / row["units"]:.1%}', f'{row["at_rest"]:.1%}']
      + [_listed(row)]
      for row in rows
    ],
  )


def _listed(row):
  more = ' ...' if row['dead'] > len(row['which']) else ''
  return ' '.join(map(str, row['which'])) + more


def _flow(norms):
  if not norms:
    return []
  cells = [['0', _number(norms[0])]]
  cells += [[f'{n}+', _number(x)] for n, x in curves.octaves(norms).items()]
  return _table(('steps before', 'norm'), cells)


def _table(header, rows):
  return tables.table(header, rows) if rows else []


def _told(row, *keys):
  return [_number(row[key]) for key in keys]


def _number(x):
  return '-' if x is None else f'{x:.3g}'
