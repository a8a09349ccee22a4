"""Cells at equal weights, each at the best of four rates, with five seeds.

The text model of suite `cells`, and its number of weights: 400 steps on the
same batches. Each rate is tried with seed 0; the best one, BEST, then gets four
more seeds, which are also those of the order of the text. Nothing is timed.

  BENCHMARK_DATA=tiny_shakespeare=PATH/input.txt \\
      python -m benchmarks.run --suite=cell_rates     100 minutes on 1 core
"""

import statistics

from benchmarks.harness import case
from benchmarks.harness import datasets
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import cells

RATES = (1e-3, 3e-3, 6e-3, 1.2e-2)
BEST = {  # by the rows of seed 0
  'simple_rnn': 6e-3,
  'qrnn': 6e-3,
  'mamba2': 3e-3,
}
SEEDS = 5


def cases(quick: bool) -> list[case.Case]:
  """Each rate with seed 0, then the other seeds at the best rate."""
  wanted = [(name, rate, 0) for rate in RATES for name in BEST]
  wanted += [
    (name, rate, seed)
    for seed in range(1, SEEDS)
    for name, rate in BEST.items()
  ]
  return [
    case.Case(
      _label(name, rate, seed),
      'suites.cells.training',
      _parameters(name, rate, seed, quick),
      repeats=0,
    )
    for name, rate, seed in wanted
  ]


def _label(name, rate, seed):
  return f'{name}: {rate:g}, seed {seed}'


def _parameters(name, rate, seed, quick):
  overrides = {'optimizer.learning_rate': rate, 'train.seed': seed}
  small = {'limit': 200} if quick else {}
  return {
    'model': {
      'cell': name,
      'size': cells.SIZES[name],
      'overrides': overrides | (cells.QUICK if quick else {}),
    },
    'data': datasets.names()[0],
    'steps': 3 if quick else cells.STEPS,
    **small,
  }


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Losses of the rates, then of the seeds at the best, the lowest first."""
  del plots
  yield tables.provenance(rows)
  yield (
    'Nats per character on the held-out text: of each rate with seed 0, and '
    'mean and standard deviation of the seeds at the best rate.'
  )
  lines = [_line(name, rows) for name in BEST]
  head = ['cell', 'weights', *(f'{rate:g}' for rate in RATES), 'best', 'seeds']
  yield tables.table(' | '.join(head), [line for _, line in sorted(lines)])
  yield tables.unmeasured(cases(False), rows)


def _line(name, rows):
  """(the mean loss of a cell, its cells of the table)."""
  by_rate = {rate: _loss(rows.get(_label(name, rate, 0))) for rate in RATES}
  losses = [
    loss
    for seed in range(SEEDS)
    if (loss := _loss(rows.get(_label(name, BEST[name], seed)))) is not None
  ]
  of_cell = tables.with_prefix(rows, f'{name}: ')
  weights = [row['weights'] for row in of_cell.values() if 'weights' in row]
  mean = statistics.fmean(losses) if losses else float('inf')
  spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
  return mean, [
    name,
    f'{weights[0]:,}' if weights else '-',
    *('-' if loss is None else f'{loss:.3f}' for loss in by_rate.values()),
    f'{mean:.3f} ± {spread:.3f}' if losses else '-',
    str(len(losses)),
  ]


def _loss(row):
  return row['held_out']['loss'] if row and 'error' not in row else None
