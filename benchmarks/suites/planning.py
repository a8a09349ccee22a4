"""Scaling to 1,024 devices, predicted: the training step is compiled for each.

Weak: so many rows per device. Strong: so many rows in all. Parameters are
sharded over up to 8 devices, the rest are copies. Nothing runs; every row has
the prediction for each device of rnn_jax/planning/devices.py.

  python -m benchmarks.run --suite=planning        45 minutes on 2 cores
"""

from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

COUNTS = (1, 4, 16, 64, 256, 1024)
SHARDS = 8  # devices that share one copy of the parameters, at most
BFLOAT16 = {'train.precision': 'bfloat16'}
WIDE = {
  'model.block': 'residual',
  'model.width': 1024,
  'model.layers': 12,
  'model.unroll': 1,
  'cell.heads': 16,
  'cell.key_width': 64,
  'cell.value_width': 64,
}
MODELS = {  # arguments of configs.parse, rows per device, rows in all
  'gpt2': (['chatgot', 'gpt2', BFLOAT16], 32, 4096),
  'SimpleRNN': (['published', '', BFLOAT16 | WIDE], 16, 2048),
}
QUICK = {'tiny': (['chatgot', 'tiny'], 2, 16)}


def cases(quick: bool) -> list[case.Case]:
  """Each model at each number of devices, weak and strong."""
  models = QUICK if quick else MODELS
  return [
    case.Case(
      f'{model}, {kind}: {count}',
      'suites.planning.step',
      {
        'config': config,
        'mesh': {'data': count // shards, 'fsdp': shards},
        'rows': each * count if kind == 'weak' else whole,
      },
      repeats=0,
    )
    for model, (config, each, whole) in models.items()
    for kind in ('weak', 'strong')
    for count in ((1, 4) if quick else COUNTS)
    for shards in [min(SHARDS, count)]
  ]


def step(config: list[Any], mesh: dict[str, int], rows: int) -> tables.Row:
  """The plan of a mesh, for each device of known figures.

  Args:
    config: arguments of configs.parse.
    mesh: {axis: size}.
    rows: of the whole batch.
  """
  import dataclasses
  import math

  from benchmarks.workloads import configs
  from rnn_jax.planning import devices as devices_lib
  from rnn_jax.planning import plan as plan_lib
  from rnn_jax.planning import predict
  from rnn_jax.planning import program as program_lib
  from rnn_jax.planning import report as report_lib

  program_lib.claim(math.prod(mesh.values()))
  first, *others = devices_lib.KNOWN.values()
  parsed = configs.parse(*config)
  request = plan_lib.Request(parsed, mesh, 0, first, rows)
  plan = plan_lib.make(request)
  flops, state = program_lib.of_one_device(parsed, rows)
  plans = {first.name: report_lib.values(request, plan)}
  for device in others:
    one = predict.work(flops, state, device)
    prediction = predict.predict(plan.program, device, one)
    plans[device.name] = report_lib.values(
      dataclasses.replace(request, device=device),
      plan._replace(prediction=prediction),
    )
  return {'plans': plans}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table and a picture for each model, weak and strong."""
  yield tables.provenance(rows)
  by_name = {}
  for case_name, row in rows.items():
    name, _, count = case_name.rpartition(': ')
    by_name.setdefault(name, {})[int(count)] = row
  for name, by_count in by_name.items():
    ordered = dict(sorted(by_count.items()))
    series = {}
    for count, row in ordered.items():
      for device, plan in row.get('plans', {}).items():
        point = count, plan['scaling_efficiency'][0]
        series.setdefault(device, []).append(point)
    yield f'**{name} scaling**'
    yield _table(ordered, series)
    if series:
      file = name.replace(', ', '_').lower()
      labels = ('devices', 'scaling efficiency, nothing overlaps')
      yield plots.lines(file, series, labels, 'linear')


def _table(by_count, devices):
  def first(row):
    return next(iter(row['plans'].values()))

  def cell(device):
    return lambda row: _cell(row['plans'].get(device))

  columns = {
    'rows': lambda row: f'{first(row)["rows"]:,}',
    'memory per device': lambda row: (
      f'{first(row)["memory"]["total"] / 2**30:.3g} GiB'
    ),
    **{device: cell(device) for device in devices},
  }
  rows = {f'{count:,}': row for count, row in by_count.items()}
  return tables.by_row('devices', rows, columns)


def _cell(plan):
  """A step's time and efficiency, with nothing and with all overlapped."""
  if plan is None:
    return '-'
  worst, best = (f'{share:.1%}' for share in plan['scaling_efficiency'])
  room = '' if plan['memory']['fits'] else ', does not fit'
  return f'{tables.seconds(plan["seconds"]["step"])}, {worst} to {best}{room}'
