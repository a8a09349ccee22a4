"""The largest error of each form of the recurrence against float64.

Outputs, final state and all gradients, with one decay per key row and one per
head, reads before and after the update, by kind of gate. rnn_jax.selfcheck says
what errors are relative to. Nothing is timed.

  python -m benchmarks.run --suite=accuracy        2 minutes on 2 cores
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

LENGTHS = {'step': 1, 'scan': 130, 'associative': 130, 'chunked': 130}


def cases(quick: bool) -> list[case.Case]:
  """Each implementation with float32 and bfloat16 inputs."""
  return [
    case.Case(
      f'{impl}, {inputs}',
      'suites.accuracy.largest',
      {'impl': impl, 'L': min(L, 5) if quick else L, 'inputs': inputs},
      repeats=0,
    )
    for impl, L in LENGTHS.items()
    for inputs in ('float32', 'bfloat16')
  ]


def largest(impl: str, L: int, inputs: str) -> tables.Row:
  """{'errors': the largest by kind of gate} at that length and input dtype."""
  from rnn_jax import selfcheck

  worst = dict.fromkeys(selfcheck.GATES, 0.0)
  for decay in ('key', 'head'):
    drawn = selfcheck.draw(L, decay, inputs)
    for read in ('after', 'before'):
      errors = selfcheck.errors(*drawn, impl=impl, read=read).values()
      for row, of_row in enumerate(zip(*errors, strict=True)):
        gate = list(selfcheck.GATES)[row // len(selfcheck.STARTS)]
        worst[gate] = max(worst[gate], float(max(of_row)))
  return {'errors': worst}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A column of errors for each kind of gate."""
  measured = {name: row for name, row in rows.items() if 'errors' in row}
  gates = dict.fromkeys(g for row in measured.values() for g in row['errors'])
  lines = (
    [*name.split(', '), *(f'{row["errors"][gate]:.1e}' for gate in gates)]
    for name, row in measured.items()
  )
  yield tables.provenance(rows)
  yield tables.table(' | '.join(['implementation', 'inputs', *gates]), lines)
  yield from tables.failures(rows)
