"""Our recurrences on a CPU and jax-linear-attention's chunked forms.

Its release takes one version of jax, so this suite runs in an environment of
its own, ours on the same jax; see docs/dependencies.md. Its GPU kernels aren't
measured here.

  python -m benchmarks.run --suite=jla
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import delta

TIMED = True
PLATFORM = 'cpu'
JLA = 'linear_attention.jla'
PEER = 'jax-linear-attention, chunked'
GLA = 'gated linear attention'
FORMS: delta.Forms = {
  f'{GLA}, native': delta.FORMS[f'{GLA}, native'],
  f'{GLA}, chunked': (
    'operators.recurrence',
    {'impl': 'chunked', 'dtype': 'float32'},
    delta.ROUNDS,
  ),
  f'{GLA}, {PEER}': (JLA, {'rule': 'gla'}, delta.ROUNDS),
  'delta rule, native': delta.FORMS['delta rule, native'],
  'delta rule, chunked': delta.FORMS['delta rule, chunked'],
  f'delta rule, {PEER}': (JLA, {'rule': 'kda'}, delta.ROUNDS),
}


def cases(quick: bool) -> list[case.Case]:
  """Each shape, forward and both ways."""
  return [*delta.compared(FORMS, quick)]


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each form of each case."""
  yield from delta.table(rows, cases(False))
