"""The native recurrence on a CPU: in a training step, and by itself.

Each form is compared with another one in turns: in the training step with the
same step without the recurrence, by itself with the chunked form. Run it once
under each jax that is to have its rows: the report keeps them apart.

  python -m benchmarks.run --suite=native          8 minutes on 2 cores
"""

from collections.abc import Iterable
from collections.abc import Iterator

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'cpu'
SHAPES = (
  [32, 512, 1, 32, 64],
  [8, 256, 4, 16, 48],
  [1, 4096, 1, 32, 64],
  [1, 4096, 4, 16, 48],
  [4, 1024, 4, 64, 128],
)
ROUNDS = 22
STEP = 'training step'


def cases(quick: bool) -> list[case.Case]:
  """The training step, then each shape forward and both ways."""
  return [*_steps(quick), *_by_itself(quick)]


def _steps(quick) -> Iterator[case.Case]:
  size = {'batch': 2, 'length': 32} if quick else {}
  base = f'{STEP}: without recurrence'
  workload = 'workloads.published_model.train_step'
  without = {'cell': 'without_recurrence', **size}
  yield case.Case(base, workload, without, ROUNDS)
  for impl in ('native', 'chunked'):
    given = {'overrides': {'recurrence.impl': impl}, **size}
    yield case.Case(f'{STEP}: {impl}', workload, given, ROUNDS, base=base)


def _by_itself(quick):
  for shape in SHAPES:
    for passes in ('forward', 'forward and backward'):
      name = f'{passes}, {"x".join(map(str, shape))}'
      for impl in ('chunked', 'native', 'scan'):
        given = {
          'shape': [1, 64, 1, 4, 4] if quick else shape,
          'impl': impl,
          'backward': passes != 'forward',
          'dtype': 'float32',
        }
        yield case.Case(
          f'{name}: {impl}',
          'workloads.operators.recurrence',
          given,
          ROUNDS,
          base=f'{name}: chunked',
        )


def select(rows: Iterable[tables.Row]) -> dict[str, tables.Rows]:
  """The newest rows by jax's version too: each keeps its own."""
  return tables.newest(
    row | {'case': f'{row["case"]}{_SUFFIX}{row["versions"]["jax"]}'}
    for row in rows
  )


_SUFFIX = '; jax '
HEAD = (
  'work | form | median | relative (95 % interval) | compiling | temporaries'
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each form of each case."""
  yield tables.table(HEAD, [_line(rows, name) for name in rows])


def _line(rows, name):
  row = rows[name]
  what, _, version = name.partition(_SUFFIX)
  work, _, form = what.partition(': ')
  if 'error' in row:
    return [work, form, tables.short(row), '-', '-', '-']
  return [
    f'{work}{_SUFFIX}{version}',
    form,
    tables.timed(row),
    tables.relative(row, rows.get(f'{row.get("base")}{_SUFFIX}{version}')),
    tables.seconds(row['compile_seconds']),
    tables.mebibytes(row['temp_bytes']),
  ]
