"""The delta rule on a CPU, beside gated linear attention of the same sizes.

The gated linear recurrence in C++ is the base: it does the least that a
recurrence with such a state can do. The delta rule reads the state once more
per step, and its general form writes it once more.

  python -m benchmarks.run --suite=delta
"""

from collections.abc import Iterator

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'cpu'
SHAPES = ([8, 2048, 4, 64, 64], [8, 256, 4, 16, 48])  # B, L, H, K, P
ROUNDS = 10
BASE = 'gated linear attention, native'
FORMS = (
  ('delta rule', 'rule', 'native'),
  ('general form', 'general', 'native'),
  ('delta rule', 'rule', 'chunked'),
)


def cases(quick: bool) -> list[case.Case]:
  """Each shape, forward and both ways."""
  return [*_cases(quick)]


def _cases(quick) -> Iterator[case.Case]:
  for shape in SHAPES:
    for passes in ('forward', 'forward and backward'):
      name = f'{passes}, {"x".join(map(str, shape))}'
      base = f'{name}: {BASE}'
      given = {
        'shape': [1, 64, 1, 4, 4] if quick else shape,
        'backward': passes != 'forward',
      }
      gla = {**given, 'impl': 'native', 'dtype': 'float32', 'chunk_length': 32}
      yield case.Case(
        base, 'workloads.operators.recurrence', gla, ROUNDS, base=base
      )
      for label, form, impl in FORMS:
        yield case.Case(
          f'{name}: {label}, {impl}',
          'workloads.operators.delta',
          {**given, 'form': form, 'impl': impl},
          ROUNDS,
          base=base,
        )


HEAD = 'work | form | median | relative (95 % interval) | temporaries'


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each form of each case."""
  yield tables.provenance(rows)
  yield tables.table(HEAD, [_line(rows, name) for name in rows])


def _line(rows, name):
  row = rows[name]
  work, _, form = name.partition(': ')
  if 'error' in row:
    return [work, form, tables.short(row), '-', '-']
  return [
    work,
    form,
    tables.timed(row),
    tables.relative(row, rows.get(row.get('base'))),
    tables.mebibytes(row['temp_bytes']),
  ]
