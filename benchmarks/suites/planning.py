"""Scaling to 512 GPUs: the training step, compiled for each number of them.

Weak: so many rows per device. Strong: so many rows in all. Parameters are
sharded over up to 8 devices, the rest are copies. One number of devices has
other meshes too. XLA's compiler for the GPU makes each program, and the CPU's
compiler another one, from which a plan for a device without its compiler would
be estimated. Nothing runs.

  python -m benchmarks.run --suite=planning

It needs the packages of cuda12 or cuda13, and no GPU.
"""

import functools
import operator
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TARGET = 'h100'
COUNTS = (8, 64, 512)
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
MESHES = (  # of 64 devices, for weak scaling of gpt2
  {'data': 64},
  {'data': 32, 'tensor': 2},
  {'data': 32, 'pipe': 2},
  {'data': 4, 'fsdp': 8, 'tensor': 2},
)


def cases(quick: bool) -> list[case.Case]:
  """Each model at each number of devices, weak and strong; other meshes."""
  models = QUICK if quick else MODELS
  scaling = [
    (
      f'{model}, {kind}: {count}',
      config,
      {'data': count // SHARDS, 'fsdp': 8},
      n,
    )
    for model, (config, each, whole) in models.items()
    for kind in ('weak', 'strong')
    for count in (COUNTS[:1] if quick else COUNTS)
    for n in [each * count if kind == 'weak' else whole]
  ]
  config, each, _ = MODELS['gpt2']
  others = [
    (f'gpt2, meshes: {_name(mesh)}', config, mesh, 64 * each)
    for mesh in (() if quick else MESHES)
  ]
  return [
    case.Case(
      name,
      'suites.planning.step',
      {'config': config, 'mesh': mesh, 'rows': rows, 'target': TARGET},
      repeats=0,
    )
    for name, config, mesh, rows in scaling + others
  ]


def _name(mesh):
  return ', '.join(f'{axis} {size}' for axis, size in mesh.items())


def step(
  config: list[Any], mesh: dict[str, int], rows: int, target: str
) -> tables.Row:
  """The plan of a mesh, with what the CPU's compiler would estimate.

  Args:
    config: arguments of configs.parse.
    mesh: {axis: size}.
    rows: of the whole batch.
    target: a GPU.
  """
  import math

  from benchmarks.workloads import configs
  from rnn_jax.planning import plan as plan_lib
  from rnn_jax.planning import program as program_lib
  from rnn_jax.planning import report as report_lib
  from rnn_jax.system import devices as devices_lib
  from rnn_jax.system import target as target_lib

  target_lib.check(target)
  program_lib.claim(math.prod(mesh.values()))
  device = devices_lib.find(target)
  request = plan_lib.Request(configs.parse(*config), mesh, 0, device, rows)
  with target_lib.using(target):
    plan = plan_lib.make(request)
  by_cpu = plan_lib.by_cpu(request, plan)
  return {'plan': report_lib.values(request, plan, None, by_cpu)}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Tables and figures of each model: weak, strong, and other meshes."""
  models = {}
  for name, row in rows.items():
    model, _, rest = name.partition(', ')
    kind, _, size = rest.partition(': ')
    models.setdefault(model, {}).setdefault(kind, {})[size] = row
  for model, kinds in models.items():
    series = {}
    for kind in ('weak', 'strong'):
      rows_of_kind = kinds.get(kind, {})
      yield f'**{model}, {kind} scaling on {TARGET}**'
      yield tables.by_row('devices', rows_of_kind, COLUMNS)
      series |= _efficiencies(kind, rows_of_kind)
    if series:
      labels = 'devices', 'scaling efficiency'
      yield plots.lines(model.lower(), series, labels, 'linear')
    if others := kinds.get('meshes'):
      shared = f'data 8, fsdp {SHARDS}'
      others = {shared: kinds['weak']['64']} | others
      yield f'**{model}, meshes of 64 {TARGET}, what each device sends**'
      yield tables.by_row('mesh', others, COLUMNS | {'sent': _sent})


def _efficiencies(kind, rows):
  """Points of three lines, as (devices, efficiency)."""
  read = {
    f'{kind}, nothing overlaps': lambda plan: plan['scaling_efficiency'][0],
    f'{kind}, as scheduled': lambda plan: plan['scaling_efficiency'][1],
    f'{kind}, estimated': lambda plan: plan['by_cpu']['scaling_efficiency'][1],
  }
  plans = [row['plan'] for row in rows.values() if 'plan' in row]
  return {
    label: [(plan['devices'], value(plan)) for plan in plans]
    for label, value in read.items()
    if plans
  }


def _both(unit, *keys):
  """A column: the target's figure, and the CPU's over it."""

  def cell(row):
    plan = row['plan']
    ours, guess = (
      functools.reduce(operator.getitem, keys, one)
      for one in (plan, plan['by_cpu'])
    )
    return f'{unit(ours)} (CPU {tables.times(guess / ours)})' if ours else '-'

  return cell


def _sent(row):
  return ', '.join(
    f'{part["opcode"]} {"+".join(part["axes"])} {part["bytes"] / 1e6:,.3g} MB'
    for part in row['plan']['sent']
    if part['bytes'] >= 1e5
  )


def _share(row):
  sent = row['plan']['sent']
  whole = sum(part['bytes'] for part in sent)
  return f'{sum(part["beside"] for part in sent) / whole:.0%}' if whole else '-'


def _efficiency(row):
  none, scheduled = row['plan']['scaling_efficiency']
  estimated = row['plan']['by_cpu']['scaling_efficiency'][1]
  return f'{none:.1%}, {scheduled:.1%}, {estimated:.1%}'


COLUMNS = {
  'rows': lambda row: f'{row["plan"]["rows"]:,}',
  'memory': _both(tables.mebibytes, 'memory', 'total'),
  'sent': _both(lambda n: f'{n / 1e6:,.4g} MB', 'sent_bytes'),
  'during computation': _share,
  'step': _both(tables.seconds, 'seconds', 'overlapped'),
  'efficiency: nothing overlaps, as scheduled, estimated': _efficiency,
}
