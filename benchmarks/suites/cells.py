"""All cells at one number of weights: speed and memory of training, latency.

The models are those of configs/experiments/cells_text.py, whose grid says what
they learn. A training step is measured on its data, the first data set of
harness/datasets.py, and decoding is a step of one row.

  BENCHMARK_DATA=tiny_shakespeare=PATH/input.txt \\
      python -m benchmarks.run --suite=cells       20 minutes on 2 cores
"""

from collections.abc import Iterable

from benchmarks.harness import case
from benchmarks.harness import datasets
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

STEPS = 50
RATE = '0.003'
QUICK = {'data.length': 16, 'data.batch_size': 2, 'model.width': 32}
HEAD = (
  'cell | weights | tokens/s | temporaries of a step | '
  'latency per token, least | state per row'
)


def cases(quick: bool) -> list[case.Case]:
  """Training and decoding of each cell."""
  from configs.experiments import cells_text

  places = (name.split('/') for name in cells_text.get_grid().variants)
  cells = dict.fromkeys(cell for cell, _ in places)
  small = {'overrides': QUICK} if quick else {}
  train = {'data': datasets.names()[0], 'steps': 3 if quick else STEPS, **small}
  decode = {'steps': 20} | small if quick else {}
  return [
    case.Case(
      f'{cell.replace("-", ", ")}: {what}',
      f'suites.cells.{what}',
      {'cell': cell, **parameters},
      repeats=0,
    )
    for cell in cells
    for what, parameters in (('training', train), ('decoding', decode))
  ]


def training(
  cell: str, data: str, steps: int, overrides: tables.Row | None = None
) -> tables.Row:
  """Steps on a data set of harness/datasets.py; seconds, bytes."""
  import tempfile

  from benchmarks.workloads import published_model
  from benchmarks.workloads import training as training_lib
  from rnn_jax.system import target

  with tempfile.TemporaryDirectory() as folder:
    raw = _config(cell, overrides)
    raw['data'] |= datasets.overrides(data, folder)
    with training_lib.Training(raw) as run:
      done = [run.step() for _ in range(steps)]
  # The first step compiles.
  values = measure.summarize([x.waiting + x.seconds for x in done[1:]])
  rows, length = run.config.data.batch_size, run.config.data.length
  compiled = run.programs.compile_train(rows, length)
  return values | {
    'weights': published_model.count(run.params),
    'tokens_per_second': rows * length / values['median'],
    'temp_bytes': target.memory(compiled).temporaries,
  }


def decoding(
  cell: str, steps: int = 1000, overrides: tables.Row | None = None
) -> tables.Row:
  """Latency of one step of one row, called from Python; bytes of its state."""
  from benchmarks.workloads import decoding as decoding_lib

  return decoding_lib.latency_of(_config(cell, overrides), steps)


def _config(cell, overrides):
  from configs.experiments import cells_text
  from rnn_jax.experiments import plan

  grid = cells_text.get_grid()
  own = grid.variants[f'{cell}/{RATE}']
  _, raw = plan.load(own.pop(plan.CONFIG, grid.config))
  return plan.changed(raw, own | (overrides or {}))


def select(rows: Iterable[tables.Row]) -> dict[str, tables.Rows]:
  """The newest rows of the last machine; at one rate, the first."""
  return {
    platform: {
      name: row for name, row in some.items() if name.count(', 0.') == 0
    }
    for platform, some in tables.newest(rows).items()
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each cell."""
  del plots
  yield _spread(rows)
  cells = dict.fromkeys(name.partition(': ')[0] for name in rows)
  yield tables.table(HEAD, [_line(cell, rows) for cell in cells])
  yield tables.unmeasured(cases(False), rows)


def _spread(rows):
  """How far medians of latencies lie from the least, a sentence; or ''."""
  apart = [
    row['median'] / row['min']
    for name, row in rows.items()
    if name.endswith(': decoding') and 'median' in row
  ]
  if not apart:
    return ''
  return (
    f'Medians of the latencies are {min(apart):.2g} to {max(apart):.2g} times '
    'the least ones, which are shown.'
  )


def _line(cell, rows):
  trained = tables.good(rows, f'{cell}: training') or {}
  decoded = tables.good(rows, f'{cell}: decoding')
  return [
    cell,
    f'{trained["weights"]:,}' if trained else '-',
    tables.rate(trained.get('tokens_per_second')),
    tables.mebibytes(trained.get('temp_bytes')),
    tables.seconds(decoded['min']) if decoded else '-',
    f'{decoded["state_bytes"] / 1024:,.1f} KiB' if decoded else '-',
  ]
