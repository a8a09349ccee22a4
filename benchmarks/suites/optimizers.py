"""Every optimizer on one job: loss, bytes of state, seconds per step.

Each with two learning rates, the first steps of configs/stdlib_bytes.py: a
short warm-up and half a cosine down to a tenth of the rate (schedule_free: no
fall). All else is the job's, so the rows say how optimizers begin, at rates
that were chosen by hand, not which of them ends best.

  python -m benchmarks.run --suite=optimizers      1 hour on 2 cores
"""

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

STEPS = 150
NESTEROV = {'nesterov': True}
RATES = {  # name, and a label: what is set besides, and the rates
  'adamw': ({}, (1e-3, 3e-3)),
  'sgd': (NESTEROV, (0.1, 0.3)),
  'lars': ({}, (1.0, 3.0)),
  'lamb': ({}, (3e-3, 1e-2)),
  'adabelief': ({}, (1e-3, 3e-3)),
  'radam': ({}, (3e-3, 1e-2)),
  'adafactor': ({}, (1e-2, 3e-2)),
  'lion': ({}, (3e-4, 1e-3)),
  'muon': (NESTEROV | {'b1': 0.95}, (3e-3, 1e-2)),
  'schedule_free': ({}, (3e-3, 1e-2)),
  'shampoo': ({}, (3e-4, 1e-3)),
  'shampoo ungrafted': ({'grafting': 'none'}, (1e-2, 3e-2)),
  'kfac': ({}, (3e-3, 1e-2)),
}
QUICK = ('adamw', 'schedule_free', 'shampoo', 'kfac')
REFERENCE = 'adamw'
EVERY = 10  # steps whose losses are one point of a curve


def cases(quick: bool) -> list[case.Case]:
  """Each optimizer at each of its rates."""
  small = {'steps': 4, 'width': 32} if quick else {'steps': STEPS}
  return [
    case.Case(
      f'{label}, {rate:g}',
      'suites.optimizers.compare',
      {'changes': {'name': name, 'learning_rate': rate} | changes} | small,
      repeats=0,
    )
    for label, (changes, rates) in RATES.items()
    for name in label.split()[:1]
    for rate in (rates[:1] if quick else rates)
    if not quick or label in QUICK
  ]


def compare(changes: tables.Row, steps: int, width: int = 0) -> tables.Row:
  """Losses by step, on held-out text, bytes of state, seconds per step.

  Args:
    changes: keys of the config's section `optimizer`.
    steps: of training.
    width: of the model; 0: the job's.
  """
  from benchmarks.workloads import training
  from rnn_jax.training.memory import batch_size

  with training.Training(_config(changes, steps, width)) as run:
    sizes = {
      'state_bytes': batch_size.tree_bytes(run.state.opt_state),
      'parameter_bytes': batch_size.tree_bytes(run.params),
    }
    done = [run.step() for _ in range(steps)]
    held_out = run.evaluate()
  sums = [step.sums for step in done]
  return {
    # The first step compiles.
    **measure.summarize([step.seconds for step in done[1:]]),
    **sizes,
    'steps': steps,
    'losses': [
      [n + len(part), _loss(part)]
      for n in range(0, steps, EVERY)
      if (part := sums[n : n + EVERY])
    ],
    'held_out': held_out,
  }


def _config(changes, steps, width):
  from configs import stdlib_bytes

  raw = stdlib_bytes.get_config()
  raw.data.splits = (98, 1, 1)
  raw.optimizer.update(changes)
  raw.schedule.warmup_steps = steps // 10
  if changes['name'] == 'schedule_free':
    raw.schedule.name = 'constant'
  else:
    raw.schedule.final_learning_rate = changes['learning_rate'] / 10
  raw.train.steps = steps
  if width:
    raw.model.update(width=width, mlp_width=width)
  return raw


def _loss(sums):
  """Nats per token over some steps."""
  total = sum(float(x['weight']) for x in sums)
  return sum(float(x['loss']) for x in sums) / total


HEAD = (
  'optimizer | rate | held-out loss | other rates | bytes of state | '
  'state / parameters | seconds per step / AdamW'
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """The better of each optimizer's rates in a table, and its curve."""
  by_name = {}
  for name, row in rows.items():
    if 'held_out' in row:
      by_name.setdefault(name.partition(',')[0], []).append(row)
  best = {name: min(some, key=_held_out) for name, some in by_name.items()}
  if best:
    steps = next(iter(best.values()))['steps']
    yield f'Losses in nats per byte after {steps} steps, the best first.'
    ranked = sorted(best, key=lambda name: _held_out(best[name]))
    lines = [_line(name, best[name], by_name) for name in ranked]
    yield tables.table(HEAD, lines)
    losses = {name: row['losses'] for name, row in best.items()}
    labels = 'step', 'training loss, nats per byte'
    yield plots.losses('losses', losses, labels)
  yield tables.unmeasured(cases(False), rows)


def _line(name, row, by_name):
  others = [
    f'{_rate(other):g}: {_held_out(other):.3f}'
    for other in by_name[name]
    if other is not row
  ]
  # Rates share a program, whose time is the least of their medians.
  own, reference = (
    min((row['median'] for row in by_name.get(who, [])), default=None)
    for who in (name, REFERENCE)
  )
  return [
    f'`{name}`',
    f'{_rate(row):g}',
    f'{_held_out(row):.3f}',
    ', '.join(others) or '-',
    f'{row["state_bytes"]:,}',
    f'{row["state_bytes"] / row["parameter_bytes"]:.2f}',
    tables.times(own / reference) if reference else '-',
  ]


def _held_out(row):
  return row['held_out']['loss']


def _rate(row):
  return row['parameters']['changes']['learning_rate']
