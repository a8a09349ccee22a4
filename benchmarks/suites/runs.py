"""Finished training runs: their learning, speed and memory.

A run is not a case: a command of its own adds its row.

  python -m benchmarks.record_run --workdir=runs/NAME
"""

import os
import pathlib
import statistics
from collections.abc import Iterable

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from rnn_jax import errors


def cases(quick: bool) -> list[case.Case]:
  """Refuses.

  Raises:
    InputError: always.
  """
  raise errors.InputError(
    "--suite='runs': rows of training runs are added by "
    'python -m benchmarks.record_run --workdir=runs/NAME'
  )


def values_of(workdir: str | os.PathLike, name: str = '') -> tables.Row:
  """A row's values: config, learning curve, speed, and the loss of the best
  checkpoint on the held-out splits, evaluated now.

  Args:
    workdir: the folder of the run.
    name: of the row; empty: the folder's.
  """
  import jax

  from rnn_jax.runs import metrics
  from rnn_jax.runs import workdir as workdir_lib
  from rnn_jax.training import evaluate

  config = workdir_lib.load_config(workdir)
  measured = metrics.read(workdir)
  train = [row for row in measured if row['split'] == 'train']
  for key in ('path', 'validation_path', 'test_path'):
    if path := config['data'].get(key):
      config['data'][key] = pathlib.Path(path).name  # without its folder
  run = evaluate.Run.open(workdir)
  return {
    'name': name or pathlib.Path(workdir).resolve().name,
    'source': config['data']['source'],
    'config': config,
    'parameters': sum(x.size for x in jax.tree.leaves(run.params)),
    'steps': train[-1]['step'],
    'tokens': sum(row['tokens'] for row in train),
    'seconds': sum(row['seconds'] for row in train),
    'tokens_per_second_median': statistics.median(
      row['tokens_per_second'] for row in train[1:] or train
    ),
    'padding_efficiency': train[-1]['padding_efficiency'],
    'peak_memory_bytes': train[-1]['peak_memory_bytes'],
    'validation_curve': _curve(measured, 'loss'),
    'accuracy_curve': _curve(measured, 'accuracy'),
    'held_out': evaluate.evaluate_run(run, ''),
  }


def _curve(measured, key):
  """(step, value) of each validation that has one."""
  return [
    (row['step'], round(row[key], 4))
    for row in measured
    if row['split'] == 'validation' and key in row
  ]


def select(rows: Iterable[tables.Row]) -> dict[str, tables.Rows]:
  """Every row, whatever its device, by when it was added."""
  numbered = {str(n): row for n, row in enumerate(rows)}
  return {'': numbered} if numbered else {}


def _held_out(key, digits=4):
  return lambda row: f'{row["held_out"][key]:.{digits}f}'


FIRST = {
  'parameters': lambda row: f'{row["parameters"]:,}',
  'steps': lambda row: f'{row["steps"]:,}',
}
SPEED = {'training': lambda row: f'{row["seconds"] / 60:.1f} min'}
SPLIT = {'held-out split': lambda row: row['held_out']['split']}
LAST = {
  'peak memory': lambda row: f'{row["peak_memory_bytes"] / 2**20:,.0f} MiB',
  'device': lambda row: row['device'],
  'commit': lambda row: row['commit'],
}


def _rate(row):
  return f'{row["tokens_per_second_median"]:,.0f}'


OF_TEXTS = {
  **FIRST,
  'tokens': lambda row: f'{row["tokens"] / 1e6:.2f} M',
  **SPEED,
  'tokens/s': _rate,
  **SPLIT,
  'nats per token': _held_out('loss'),
  'bits per byte': _held_out('bits_per_byte'),
  'gzip, xz': lambda row: ', '.join(
    f'{row["held_out"][key]:.3f}' for key in ('gzip', 'xz')
  ),
  **LAST,
}
OF_CLASSES = {
  **FIRST,
  'tokens': lambda row: f'{row["tokens"] / 1e6:.2f} M',
  **SPEED,
  'tokens/s': _rate,
  **SPLIT,
  'accuracy': _held_out('accuracy'),
  'nats per text': _held_out('loss'),
  **LAST,
}
OF_PICTURES = {
  **FIRST,
  'pictures': lambda row: f'{row["tokens"]:,}',
  **SPEED,
  'pictures/s': _rate,
  **SPLIT,
  'accuracy': _held_out('accuracy'),
  'nats per picture': _held_out('loss'),
  **LAST,
}


def _columns(row):
  """Returns the columns of the table that has the row."""
  if row['config']['data'].get('layout') == 'images':
    return OF_PICTURES
  return OF_TEXTS if 'bits_per_byte' in row['held_out'] else OF_CLASSES


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table each of runs on text, of classes of texts and of pictures; then
  the curves of pictures' runs that kept theirs.
  """
  for columns in (OF_TEXTS, OF_CLASSES, OF_PICTURES):
    lines = [
      [row['name'], *(cell(row) for cell in columns.values())]
      for row in rows.values()
      if _columns(row) is columns
    ]
    if lines:
      yield tables.table(' | '.join(['run', *columns]), lines)
  curves = {
    row['name']: [(step, 1 - share) for step, share in row['accuracy_curve']]
    for row in rows.values()
    if _columns(row) is OF_PICTURES and row.get('accuracy_curve')
  }
  if curves:
    yield plots.losses('errors', curves, ('steps', 'validation error rate'))
