"""Multi-query associative recall at its published sizes, for every cell.

Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language
Models", 2023: 8,192 symbols; 64, 128 or 256 of them in a text, with 4, 8 or 16
pairs to remember; two layers. The model is that of configs/long_range.py:mqar,
with each cell at the width at which it has as many weights as SimpleRNN's; a
cell whose state is a matrix has SimpleRNN's head and keys. The published runs
read 100,000 texts up to 64 times, in which one symbol fills the places between
the keys, which are random here. These models read 24,000 to 96,000 texts once.

'untied' is SimpleRNN with a head of its own, 'small state' with four heads of
16 x 16, 'forgets' with its usual gates: what the recipe owes to each. 'keeps'
are cells whose gates start where SimpleRNN's do, at .9997 or .9995, and '8
heads' is a Mamba-2 of eight decays over the same keys. 'one filler' is the
published form, and 'longer' reads three times as many texts. One seed, but five
of SimpleRNN's hardest; nothing is timed.

  python -m benchmarks.run --suite=mqar       4 minutes a case on 1 core
"""

import statistics
from typing import NamedTuple

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import cells
from benchmarks.suites import long_range

SIZES = ((256, 16), (128, 8), (64, 4))  # symbols, pairs; the hardest first
TOKENS = 4096  # of a batch
STEPS = 1500
RATES = (1e-2, 3e-3, 1e-3, 3e-4)
CELLS = tuple(name for name in cells.SIZES if ',' not in name)
REFERENCE = cells.REFERENCE
MATRIX = {'cell.heads': 1, 'cell.key_width': 112}
MATRICES = (
  'retnet',
  'gla',
  'hgrn2',
  'mamba2',
  'mlstm',
  'deltanet',
  'gated_deltanet',
  'kda',
  'rwkv7',
)
ABLATIONS = {
  'simple_rnn, untied': {'model.tied': False},
  'simple_rnn, small state': {
    'cell.heads': 4,
    'cell.key_width': 16,
    'cell.value_width': 16,
  },
  'simple_rnn, forgets': {'cell.gate_bias': 3.0, 'cell.gate_spread': 2.0},
  'gla, keeps': {'cell.temperature': 2048.0},
  'hgrn2, keeps': {'cell.lower_bound': 0.999},
  'mlstm, keeps': {'cell.forget_biases': (8.0, 8.0)},
  'mamba2, 8 heads': {'cell.heads': 8},
}
SEEDS = tuple(f'{REFERENCE}, seed {seed}' for seed in range(1, 5))
LONGER = 3  # times the steps
ONE_FILLER = {'data.mqar.filler': 'one'}
ONCE = {  # a model at one size and one rate
  'simple_rnn, one filler': (SIZES[0], 1e-2),
  'simple_rnn, one filler, longer': (SIZES[0], 1e-2),
  'attention, one filler': (SIZES[0], 3e-3),
  'attention, longer': (SIZES[-1], 3e-3),
}
QUICK = {'model.width': 16, 'data.mqar.vocabulary': 64}


def cases(quick: bool) -> list[case.Case]:
  """The hardest size first, each at the rates from the highest down."""
  wanted = [
    (name, name, size, rate)
    for size in SIZES
    for rate in RATES
    for name in CELLS
  ]
  wanted += [
    (name, name.partition(', ')[0], SIZES[0], RATES[0])
    for name in (*ABLATIONS, *SEEDS)
  ]
  wanted += [
    (name, name.partition(', ')[0], size, rate)
    for name, (size, rate) in ONCE.items()
  ]
  return [
    case.Case(
      f'{name}: {length}, {pairs} at {rate:g}',
      'suites.mqar.learn',
      {
        'cell': cell,
        'length': length,
        'pairs': pairs,
        'rate': rate,
        'steps': 3 if quick else _steps(name),
        'overrides': _overrides(name) | (QUICK if quick else {}),
      },
      repeats=0,
      timeout=900.0 * LONGER,
    )
    for name, cell, (length, pairs), rate in wanted
  ]


def _steps(name):
  return STEPS * (LONGER if name.endswith('longer') else 1)


def _overrides(name):
  cell = name.partition(', ')[0]
  matrix = MATRIX if cell in MATRICES else {}
  filler = ONE_FILLER if 'one filler' in name else {}
  seed = {'train.seed': int(name[-1])} if name in SEEDS else {}
  return matrix | filler | seed | ABLATIONS.get(name, {})


def learn(
  cell: str,
  length: int,
  pairs: int,
  rate: float,
  steps: int,
  overrides: tables.Row,
) -> tables.Row:
  """Trains on fresh texts; right answers on held-out ones, bytes of state."""
  from benchmarks.workloads import training
  from configs import long_range as config_file
  from rnn_jax import config as config_lib

  def config(cell):
    return config_file.get_config(f'mqar,{cell}')

  size = cells.SIZES[cell]
  raw = cells.sized(config, cell, size, overrides)
  training.set_steps(raw, steps)
  rows = max(1, TOKENS // length)
  config_lib.override(
    raw,
    {
      'data.length': length,
      'data.boundaries': (length,),
      'data.batch_size': rows,
      'data.splits': (95, 5, 0),
      'data.mqar.length': length,
      'data.mqar.pairs': pairs,
      'data.mqar.examples': steps * rows * 10 // 9 + 100,
      'evaluate.tokens': 200_000,
      'optimizer.learning_rate': rate,
    },
  )
  return long_range.trained(raw, size, steps)


select = tables.newest_of_any_device  # nothing is timed


class Best(NamedTuple):
  """The row of a cell and a size at its best rate, of `rates` that ran."""

  share: float
  rate: str
  row: tables.Row
  rates: int

  def __str__(self) -> str:
    return f'{100 * self.share:.1f} % ({self.rate} of {self.rates})'


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Each cell at its best rate, and a picture against its state."""
  yield tables.provenance(rows)
  best = _best(rows)
  sizes = [f'{length}, {pairs}' for length, pairs in SIZES]
  shown = [cell for cell in best if cell not in SEEDS]
  # Cells first, the best of the hardest size first.
  shown.sort(
    key=lambda cell: (
      ', ' in cell,
      [-best[cell][size].share if size in best[cell] else 1 for size in sizes],
    )
  )
  head = ' | '.join(['cell', 'weights', 'state per row', *sizes])
  yield tables.table(head, [_line(cell, best[cell], sizes) for cell in shown])
  yield from _of_seeds(rows, f'{sizes[0]} at {RATES[0]:g}')
  points = [
    (cell, best[cell][sizes[0]].row['state_bytes'], best[cell][sizes[0]].share)
    for cell in shown
    if sizes[0] in best[cell]
  ]
  if points:
    labels = 'bytes of state per row', 'share right'
    yield plots.points('state', {'256 symbols, 16 pairs': points}, labels)


def _best(rows):
  """Best by cell and size."""
  best = {}
  for name, row in rows.items():
    if 'error' in row:
      continue
    cell, _, rest = name.partition(': ')
    size, _, rate = rest.partition(' at ')
    own = Best(row['held_out']['accuracy'], rate, row, 1)
    of_cell = best.setdefault(cell, {})
    if before := of_cell.get(size):
      own = max(before, own, key=lambda one: one.share)
      own = own._replace(rates=before.rates + 1)
    of_cell[size] = own
  return best


def _line(cell, made, sizes):
  row = next(iter(made.values())).row
  return [
    cell,
    f'{row["weights"]:,}',
    f'{row["state_bytes"] / 1024:,.1f} KiB',
    *(str(made.get(size, '-')) for size in sizes),
  ]


def _of_seeds(rows, hardest):
  """A sentence on all seeds, once there are all."""
  found = [
    rows.get(f'{name}: {hardest}', {}).get('held_out')
    for name in (REFERENCE, *SEEDS)
  ]
  if all(found):
    shares = [100 * scores['accuracy'] for scores in found]
    yield (
      f'{REFERENCE}, {hardest}, mean and standard deviation of {len(shares)} '
      f'seeds: {statistics.mean(shares):.1f} ± {statistics.stdev(shares):.1f} '
      f'%, the lowest {min(shares):.1f} %.'
    )
