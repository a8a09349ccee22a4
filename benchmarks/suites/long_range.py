"""What cells keep: state tracking and long range, against their states.

The model is that of configs/long_range.py, with each cell at the width at which
it has as many weights as SimpleRNN's, as in suite cells; some cells also with
an option that such tasks are known to need. One seed and one learning rate, the
config's; nothing is timed.

  python -m benchmarks.run --suite=long_range       2 hours on 2 cores
"""

import operator
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import cells

STEPS = {
  'parity': 400,
  's5': 2000,
  'digits': 600,
  'listops': 1000,
}
TITLES = {
  'parity': 'parity',
  's5': 'S5',
  'digits': 'digits',
  'listops': 'ListOps',
}
CELLS = {name: {} for name in cells.SIZES if ',' not in name} | {
  f'{name}, beta to 2': {'cell.max_beta': 2.0}
  for name in ('deltanet', 'gated_deltanet', 'kda')
}
QUICK = {'data.batch_size': 2, 'model.width': 32}


def cases(quick: bool) -> list[case.Case]:
  """Each task with each cell."""
  return [
    case.Case(
      f'{task}: {name}',
      'suites.long_range.learn',
      {
        'task': task,
        'cell': name.partition(',')[0],
        'steps': 3 if quick else steps,
        'overrides': overrides | (QUICK if quick else {}),
      },
      repeats=0,
    )
    for task, steps in STEPS.items()
    for name, overrides in CELLS.items()
  ]


def learn(
  task: str, cell: str, steps: int, overrides: tables.Row
) -> tables.Row:
  """Trains on fresh texts; right answers on held-out ones, bytes of state."""
  from benchmarks.workloads import training
  from configs import long_range

  def config(cell):
    return long_range.get_config(f'{task},{cell}')

  size = cells.SIZES[cell]
  raw = cells.sized(config, cell, size, overrides)
  training.set_steps(raw, steps)
  source = long_range.TASKS[task][0]
  if options := raw.data.get(source):  # a digit can't be generated
    raw.data.splits = (95, 5, 0) if task == 'listops' else (90, 5, 5)
    options.examples = steps * raw.data.batch_size * 10 // 9 + 100
  return trained(raw, size, steps)


def trained(raw: Any, size: str, steps: int) -> tables.Row:
  """Trains a config from `cells.sized`; what `learn` returns."""
  from benchmarks.workloads import training
  from rnn_jax.training.memory import batch_size

  with training.Training(raw) as run:
    values = run.learn(steps)
    if raw.data.splits[2]:
      values['test'] = run.evaluate('test')
    state = run.programs.task.init_state(1)
  return values | {
    'state_bytes': batch_size.tree_bytes(state),
    'size': operator.attrgetter(size)(raw.cell) if size else 0,
  }


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table of what each cell got right, and a picture against its state."""
  yield tables.provenance(rows)
  by_cell = {}
  for name, row in rows.items():
    task, _, cell = name.partition(': ')
    if 'error' not in row:
      by_cell.setdefault(cell, {})[task] = row
  yield tables.table(HEAD, [_line(*pair) for pair in by_cell.items()])
  points = {
    title: [
      (cell, made[task]['state_bytes'], made[task]['held_out']['accuracy'])
      for cell, made in by_cell.items()
      if task in made
    ]
    for task, title in TITLES.items()
  }
  if any(points.values()):
    labels = 'bytes of state per row', 'share right'
    yield plots.points('state', points, labels)


LONGER = 'parity', 's5'  # tasks that have a longer test split
HEAD = (
  'cell | weights | state per row | parity, 64 | parity, 256 | S5, 64 | '
  'S5, 256 | digits | ListOps'
)


def _line(cell, made):
  first = next(iter(made.values()))
  shares = []
  for task in STEPS:
    row = made.get(task, {})
    splits = ('held_out', 'test') if task in LONGER else ('held_out',)
    shares += [_share(row.get(split)) for split in splits]
  return [
    cell,
    f'{first["weights"]:,}',
    f'{first["state_bytes"] / 1024:,.1f} KiB',
    *shares,
  ]


def _share(scores):
  return f'{100 * scores["accuracy"]:.1f} %' if scores else '-'
