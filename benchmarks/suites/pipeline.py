"""The input pipeline by itself, the training step by itself, and both together.

On the main job, which streams, and on the same with rows bucketed by length.
Besides, what one GPU would need: the step's floating-point operations at the
share of the GPU's peak that plans assume, a roofline of a GPU that isn't there.

  python -m benchmarks.run --suite=pipeline        7 minutes on 2 cores
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
GOAL = 20  # times as many tokens as the CPU's step takes
GPU = 'h100'
ROOFLINE = f'one {GPU}, roofline'


def cases(quick: bool) -> list[case.Case]:
  """The three of each job, and its step on one GPU."""
  return [*_turns(quick), *_rooflines(quick)]


def _turns(quick):
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


def _rooflines(quick):
  for job, overrides in JOBS.items():
    small = TINY if quick else {}
    yield case.Case(
      f'{job}: {ROOFLINE}',
      'suites.pipeline.roofline',
      {'overrides': {**overrides, **small}},
      repeats=0,
    )


def roofline(overrides: tables.Row) -> tables.Row:
  """Tokens per second that a plan promises for one GPU: at most so many."""
  from benchmarks.workloads import configs
  from rnn_jax.planning import plan as plan_lib
  from rnn_jax.system import devices as devices_lib

  config = configs.parse('stdlib_bytes', '', overrides)
  request = plan_lib.Request(config, {'data': 1}, 0, devices_lib.find(GPU))
  prediction = plan_lib.make(request).prediction
  return {
    'step_seconds': prediction.step,
    'tokens_per_second': prediction.tokens[0],
  }


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
  """A line for each case, and what the input is to each step."""
  turns = {
    name: row
    for name, row in rows.items()
    if not name.startswith('reference') and not name.endswith(ROOFLINE)
  }
  yield tables.by_row('what', turns, COLUMNS)
  head = (
    f"job | input, tokens/s | times the CPU's step (goal: {GOAL}) | "
    f'{ROOFLINE}, tokens/s | times that'
  )
  yield tables.table(head, [_compared(rows, job) for job in JOBS])
  yield tables.unmeasured(cases(False), rows)


def _compared(rows, job):
  names = ('pipeline alone', 'step alone', ROOFLINE)
  given, step, most = (
    rows.get(f'{job}: {name}', {}).get('tokens_per_second') for name in names
  )
  return [
    job,
    tables.rate(given),
    _times(given, step),
    tables.rate(most),
    _times(given, most),
  ]


def _times(given, needed):
  return tables.times(given / needed) if given and needed else '-'
