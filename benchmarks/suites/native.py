"""The native recurrence on a CPU: in a training step, and by itself.

A shared machine's speed changes from second to second. So the forms take turns
in one process, and what counts is the ratio of each turn's times, its median
and spread. Run it once under each jax that is to have its rows: the report
keeps them apart.

  python -m benchmarks.run --suite=native          2 minutes on 2 cores
"""

import statistics
from collections.abc import Iterable
from collections.abc import Sequence

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

PLATFORM = 'cpu'
SHAPES = (
  [32, 512, 1, 32, 64],
  [8, 256, 4, 16, 48],
  [1, 4096, 1, 32, 64],
  [1, 4096, 4, 16, 48],
  [4, 1024, 4, 64, 128],
)
WITHOUT = 'without recurrence'


def cases(quick: bool) -> list[case.Case]:
  """The training step, then each shape forward and both ways."""
  size = {'batch': 2, 'length': 32} if quick else {}
  step = case.Case('training step', 'suites.native.train_step', size, 22)
  by_itself = [
    case.Case(
      f'{passes}: {"x".join(map(str, shape))}',
      'suites.native.recurrence',
      {'shape': [1, 64, 1, 4, 4] if quick else shape, 'backward': backward},
      22,
    )
    for shape in SHAPES
    for passes, backward in (('forward', False), ('forward and backward', True))
  ]
  return case.framed([step, *by_itself], quick)


def train_step(repeats: int, batch: int = 32, length: int = 512) -> tables.Row:
  """A training step of the published model under each impl; ratios are to its
  time without the recurrence.
  """
  forms = {
    name: _step(name, batch, length) for name in ('native', 'chunked', WITHOUT)
  }
  return _in_turns(forms, WITHOUT, repeats)


def _step(name, batch, length):
  """(a function that takes a step, XLA's figures of it)."""
  from benchmarks.workloads import programs
  from benchmarks.workloads import published_model

  overrides = {'recurrence.impl': name}
  if name == WITHOUT:
    overrides = {}
    published_model.use_cell('without_recurrence')
  made = published_model.make_step(batch, length, overrides)
  program, values = programs.compile_ahead(*made)
  return programs.step(program, *made[1:]), values


def recurrence(
  repeats: int, shape: Sequence[int], backward: bool
) -> tables.Row:
  """`gla.recurrence` by itself; ratios are to the chunked form's time."""
  from benchmarks.workloads import operators

  forms = {
    impl: operators.compile_recurrence(shape, impl, backward, 'float32')
    for impl in ('native', 'chunked', 'scan')
  }
  return _in_turns(forms, 'chunked', repeats)


def _in_turns(forms, base, repeats):
  """Times of each form, by turns, and their ratios to the base's.

  A form is (a function, further values).
  """
  from rnn_jax.native import library

  for run, _ in forms.values():
    run()
  times = {name: [] for name in forms}
  for _ in range(repeats):
    for name, (run, _) in forms.items():
      times[name].append(measure.seconds(run))
  values = {}
  for name, seconds in times.items():
    ratios = [a / b for a, b in zip(seconds, times[base], strict=True)]
    values[name] = (
      forms[name][1]
      | measure.summarize(seconds)
      | {
        'ratio': statistics.median(ratios),
        'ratio_low': measure.quantile(ratios, 0.1),
        'ratio_high': measure.quantile(ratios, 0.9),
      }
    )
  described = library.describe().partition(', ')[2]  # without its path
  return {'base': base, 'forms': values, 'native': described}


def select(rows: Iterable[tables.Row]) -> dict[str, tables.Rows]:
  """The newest rows by jax's version too: each keeps its own."""
  return tables.newest(
    row | {'case': f'{row["case"]}; jax {row["versions"]["jax"]}'}
    for row in rows
  )


HEAD = (
  'work | form | median | ratio to the base (10 % to 90 %) | compiling | '
  'temporaries'
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each form of each case."""
  measured = {name: row for name, row in rows.items() if 'forms' in row}
  lines = [
    _line(name, form, values, row['base'])
    for name, row in measured.items()
    for form, values in row['forms'].items()
  ]
  libraries = {row['native'] for row in measured.values()}
  yield (
    f'{tables.provenance(rows)} The library: {"; ".join(sorted(libraries))}. '
    'Forms take turns in one process; a ratio is of one turn.'
  )
  yield tables.table(HEAD, lines)


def _line(name, form, values, base):
  ratio = 'the base'
  if form != base:
    low, high = values['ratio_low'], values['ratio_high']
    ratio = f'{values["ratio"]:.2f} ({low:.2f} to {high:.2f})'
  return [
    name,
    form,
    tables.seconds(values['median']),
    ratio,
    tables.seconds(values['compile_seconds']),
    tables.mebibytes(values['temp_bytes']),
  ]
