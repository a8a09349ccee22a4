"""The input pipeline by itself, the training step by itself, and both together.

On the main job, which streams, and on the same with rows bucketed by length.

  python -m benchmarks.run --suite=pipeline        6 minutes on 2 cores
"""

import itertools

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

JOBS = {
  'stream': {},
  'buckets': {'data.layout': 'buckets'},
}
TINY = {
  'model.width': 16,
  'model.mlp_width': 16,
  'cell.heads': 2,
  'cell.value_width': 8,
}
WARMUPS = 3  # per shape of a batch


def cases(quick: bool) -> list[case.Case]:
  """The three of each job."""
  return [
    case.Case(
      f'{job}: {name}',
      'suites.pipeline.turns',
      {
        'steps': 2 if quick else 20,
        'overrides': {**overrides, **(TINY if quick else {})},
        'what': what,
      },
      5,
    )
    for job, overrides in JOBS.items()
    for name, what in (
      ('pipeline alone', 'read'),
      ('step alone', 'train'),
      ('both', 'both'),
    )
  ]


def turns(
  repeats: int, steps: int, what: str, overrides: tables.Row
) -> tables.Row:
  """Seconds per batch, which is only read, only trained on, or both.

  Args:
    repeats: of `steps` turns each.
    steps: turns that are one measurement.
    what: 'read', while nothing computes on the batches; 'train', on batches
      that are there already; 'both', as in a run, with the share of the time
      that it waits for data.
    overrides: of configs/stdlib_bytes.py, {'section.key': value}.
  """
  import numpy as np

  from benchmarks.workloads import configs
  from benchmarks.workloads import training

  with training.Training(configs.load('stdlib_bytes', '', overrides)) as run:
    waiting = total = tokens = 0.0
    if what == 'train':
      kept = itertools.cycle([run.next() for _ in range(steps)])

    def turn():
      nonlocal waiting, total, tokens
      if what == 'read':
        tokens += float(np.asarray(run.next().weights_BxL).sum())
      elif what == 'train':
        tokens += float(run.train(next(kept))['weight'])
      else:
        step = run.step()
        waiting += step.waiting
        total += step.waiting + step.seconds
        tokens += float(step.sums['weight'])

    for _ in range(WARMUPS * len(run.shapes)):
      turn()
    waiting = total = tokens = 0.0
    seconds = [
      measure.seconds(lambda: [turn() for _ in range(steps)]) / steps
      for _ in range(repeats)
    ]
  values = measure.summarize(seconds) | {
    'tokens_per_second': tokens / (sum(seconds) * steps),
    'shapes': run.shapes,
  }
  return values | ({'waiting_share': waiting / total} if total else {})


def _waiting(row):
  share = row.get('waiting_share')
  return '-' if share is None else f'{100 * share:.1f} %'


COLUMNS = {
  'a batch': tables.timed,
  'tokens/s': lambda row: tables.rate(row.get('tokens_per_second')),
  'time waiting for data': _waiting,
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each case."""
  turns = {n: row for n, row in rows.items() if not n.startswith('reference')}
  yield tables.provenance(rows)
  yield tables.by_row('what', turns, COLUMNS)
