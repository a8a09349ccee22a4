"""The plan of this machine, and real steps on virtual devices.

Each repeat measures the machine again, plans for it and steps on it; the spread
of the repeats shows the noise.

  python -m benchmarks.run --suite=prediction      12 minutes on 2 cores
"""

import statistics
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

MESHES = (
  {'data': 1},
  {'data': 4, 'fsdp': 2},
  {'data': 2, 'fsdp': 2, 'tensor': 2},
)
MODELS = {  # arguments of configs.parse
  'ChatGoT small': ['chatgot', 'small'],
  'SimpleRNN': ['published', '', {'cell.heads': 2}],  # for 'tensor': 2
}
QUICK = {'ChatGoT tiny': ['chatgot', 'tiny']}


def cases(quick: bool) -> list[case.Case]:
  """Each model on one device and on eight."""
  return [
    case.Case(
      f'{model}: {",".join(f"{name}={size}" for name, size in mesh.items())}',
      'suites.prediction.confirmed',
      {'config': config, 'mesh': mesh, 'rows': 2 if quick else 32},
      3,
    )
    for model, config in (QUICK if quick else MODELS).items()
    for mesh in (MESHES[:1] if quick else MESHES)
  ]


def confirmed(
  repeats: int, config: list[Any], mesh: dict[str, int], rows: int
) -> tables.Row:
  """A plan for this machine's own devices and real steps on them.

  Args:
    repeats: of the whole.
    config: arguments of configs.parse.
    mesh: {axis: size}.
    rows: of the whole batch.
  """
  import math

  from benchmarks.workloads import configs
  from rnn_jax.planning import plan as plan_lib
  from rnn_jax.planning import program as program_lib
  from rnn_jax.planning import report as report_lib
  from rnn_jax.system import devices as devices_lib

  program_lib.claim(math.prod(mesh.values()))
  parsed = configs.parse(*config)
  plans = []
  for _ in range(repeats):
    here = devices_lib.find('cpu')
    request = plan_lib.Request(parsed, mesh, 0, here, rows)
    plan = plan_lib.make(request)
    plans.append(report_lib.values(request, plan, plan_lib.confirm(plan)))
  return {'plans': plans}


HEAD = (
  'model | mesh | a step, predicted | measured | measured / predicted | '
  'state and batch | peak of memory'
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Measured over predicted, by model and mesh: medians of the repeats.

  The peak is the first plan's: later ones of a process reuse what it has.
  """
  lines = []
  for name, row in rows.items():
    model, _, mesh = name.rpartition(': ')
    failed = 'plans' not in row
    cells = [tables.short(row), *'----'] if failed else _cells(row['plans'])
    lines.append([model, mesh, *cells])
  yield tables.table(HEAD, lines)


def _cells(plans):
  pairs = [(one['measured'], one) for one in plans]
  ratios = [
    [real['seconds'] / one['seconds']['step'] for real, one in pairs],
    [real['held'] / one['memory']['arguments'] for real, one in pairs],
    [plans[0]['measured']['peak'] / plans[0]['memory']['total']],
  ]
  predicted = statistics.median(one['seconds']['step'] for one in plans)
  measured = statistics.median(real['seconds'] for real, _ in pairs)
  step, held, peak = map(statistics.median, ratios)
  return [
    tables.seconds(predicted),
    tables.seconds(measured),
    f'{step:.2f} ({min(ratios[0]):.2f} to {max(ratios[0]):.2f})',
    f'{held:.3g}',
    f'{peak:.3g}',
  ]
