"""The delta rule on a CPU, with gated linear attention of the same sizes.

The gated linear recurrence in C++ is the base: it does the least that a
recurrence with such a state can do. The delta rule reads the state once more
per step, and its general form writes it once more. Of flash-linear-attention
there are the forms that run without a GPU; suite `jla` has another library.

  python -m benchmarks.run --suite=delta
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'cpu'
SHAPES = ([8, 2048, 4, 64, 64], [8, 256, 4, 16, 48])  # B, L, H, K, P
ROUNDS = 10
FEW = 3  # of what runs step by step in Python
NATIVE = {'impl': 'native', 'dtype': 'float32', 'chunk_length': 32}
Forms = Mapping[str, tuple[str, tables.Row, int]]


def _fla(rule, form):
  return 'linear_attention.fla', {'rule': rule, 'form': form}, FEW


# Label: workload, parameters, rounds. The first is the base.
FORMS: Forms = {
  'gated linear attention, native': ('operators.recurrence', NATIVE, ROUNDS),
  'gated linear attention, flash-linear-attention': _fla('gla', 'recurrent'),
  **{
    f'{name}, {impl}': ('operators.delta', {'form': form, 'impl': impl}, ROUNDS)
    for name, form, impl in (
      ('delta rule', 'rule', 'native'),
      ('general form', 'general', 'native'),
      ('delta rule', 'rule', 'chunked'),
    )
  },
  **{
    f'delta rule, flash-linear-attention{name}': _fla('kda', form)
    for name, form in (('', 'recurrent'), (', chunked', 'chunk'))
  },
}


def cases(quick: bool) -> list[case.Case]:
  """Each shape, forward and both ways."""
  return [*compared(FORMS, quick)]


def compared(forms: Forms, quick: bool) -> Iterator[case.Case]:
  """The forms at each shape, forward and both ways, vs. the first."""
  for shape in SHAPES:
    for passes in ('forward', 'forward and backward'):
      name = f'{passes}, {"x".join(map(str, shape))}'
      given = {
        'shape': [1, 64, 1, 4, 4] if quick else shape,
        'backward': passes != 'forward',
      }
      for label, (workload, parameters, rounds) in forms.items():
        yield case.Case(
          f'{name}: {label}',
          f'workloads.{workload}',
          given | parameters,
          rounds,
          base=f'{name}: {next(iter(forms))}',
        )


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each form of each case."""
  yield from table(rows, cases(False))


def table(rows: tables.Rows, expected: Iterable[case.Case]) -> tables.Report:
  """The same of any suite with such cases."""
  yield tables.by_row(
    'work | form',
    rows,
    {
      'median': tables.timed,
      'relative (95 % interval)': lambda row: tables.relative(
        row, rows.get(row.get('base'))
      ),
      'temporaries': lambda row: tables.mebibytes(row.get('temp_bytes')),
      'difference from ours': lambda row: (
        f'{row["difference"]:.1e}' if 'difference' in row else '-'
      ),
    },
  )
  yield tables.unmeasured(expected, rows)
