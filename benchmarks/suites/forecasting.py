"""Forecasters of series: training to the same error, and a new reading.

Ours, neuralforecast's LSTM and gluonts' DeepAR learn one drawn panel of hourly
series (benchmarks/workloads/forecasting.py). A training is whole, from new
parameters to the last step, and the row has the MASE that it reaches on two
days that nobody has seen. Each has the steps after which it hardly gets better,
ours those that reach the others' MASE. Then a series has a new reading: ours is
a stream, which reads that one; the others read their context again, as their
documentation shows, and neuralforecast's network also by itself.

  pip install -e .[forecast-peers]      an environment of its own
  python -m benchmarks.run --suite=forecasting
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

OURS = 'ours'
STEPS = {'neuralforecast': 1000, 'gluonts': 1000, OURS: 85}
ASKED = ('neuralforecast', 'neuralforecast, network', 'gluonts', OURS)
SIZES = {'series': 64, 'rows': 16, 'width': 64}
QUICK = {'series': 2, 'rows': 2, 'width': 8}
TRAINING, READING = 'training, ', 'a new reading, '


def cases(quick: bool) -> list[case.Case]:
  """Training, then a new reading: the others, then ours."""
  sizes = QUICK if quick else SIZES
  trained = [
    _case(TRAINING, who, sizes | {'steps': 2 if quick else steps}, 3)
    for who, steps in STEPS.items()
  ]
  return [*trained, *(_case(READING, who, sizes, 30) for who in ASKED)]


def _case(what, who, sizes, repeats):
  workload = {TRAINING: 'training', READING: 'forecasting'}[what]
  first = next(iter(STEPS if what == TRAINING else ASKED))
  return case.Case(
    what + who,
    f'workloads.forecasting.{workload}',
    {'who': who, 'sizes': sizes},
    repeats,
    base=what + first,
  )


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Seconds and MASE of a training, and seconds of a reading.

  Speed is the first one's time over a forecaster's.
  """
  del plots
  base = tables.good(rows, TRAINING + next(iter(STEPS)))
  head = 'training | steps | seconds | MASE | speed'
  lines = []
  for who in STEPS:
    row = tables.good(rows, TRAINING + who)
    steps = f'{row["parameters"]["sizes"]["steps"]:,}' if row else '-'
    error = f'{row["mase"]:.3f}' if row else '-'
    lines.append(
      [who, steps, _time(rows, TRAINING + who), error, tables.speed(row, base)]
    )
  yield tables.table(head, lines)
  base = tables.good(rows, READING + ASKED[0])
  lines = []
  for who in ASKED:
    row = tables.good(rows, READING + who)
    lines.append([who, _time(rows, READING + who), tables.speed(row, base)])
  yield tables.table('a new reading | seconds | speed', lines)
  yield tables.unmeasured(cases(False), rows)


def _time(rows, name):
  return tables.timed(rows.get(name))
