"""The training steps of configs/large.py on one GPU: predicted, not measured.

Each step is compiled for the GPU, which isn't attached. The compiler says what
memory it needs, and its kernels' bytes and operations how long they would take
(rnn_jax/profiling/kernel_times.py); the suite `calibration` says how far such
predictions are from what was measured. Nothing runs.

  python -m benchmarks.run --suite=large

It needs the packages of cuda12 or cuda13, and no GPU.
"""

from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import calibration
from rnn_jax.system import gpu_memory

TARGET = 'h100'
MODELS = (
  'gated_deltanet',
  'mamba2',
  'transformer',
  'gla',
  'kda',
  'rwkv7',
  'simple_rnn',
)
SIZES = ('340m', '1b3')
EIGHT = ', 8 GPUs'
ROWS = 16
SMALL = {  # the widths of heads stay
  'model.layers': 2,
  'model.width': 128,
  'data.length': 128,
  'cell.heads': 2,
  'data.vocabulary': 512,
  'model.unroll': 2,
  'train.accumulate': 2,
}
# Other ways to compute the step of one model, by the keys that they change.
STEP = 'gated_deltanet_1b3'
WAYS = {
  'micro-batches, scanned': {
    'model.unroll': 1,
    'remat.layers': 1,
    'remat.keep': ('matmuls', 'recurrence'),
  },
  'one batch, scanned': {
    'model.unroll': 1,
    'train.accumulate': 1,
    'remat.layers': 1,
    'remat.keep': ('recurrence',),
  },
}
PARTS = (  # of kernel_times.PARTS, in a table
  'matmuls',
  'recurrence',
  'norms',
  'convolution',
  'gates and activations',
  'embedding',
  'loss',
  'optimizer',
  'copies and casts',
)
# Tokens per second of 1.3B models on an H100, 65,536 tokens a step, bfloat16:
# the README of jax-linear-attention 0.1.0 (October 2026), of itself, and by its
# ratios of flash-linear-attention with flame.
PUBLISHED = {
  'transformer': (60_178, 52_300),
  'gated_deltanet': (42_995, 25_700),
  'mamba2': (38_899, 37_000),
  'kda': (35_110, 23_600),
  'rwkv7': (28_484, None),
}
TIMEOUT = 1800.0
ENVIRONMENT = gpu_memory.variables(0.95, {})


def cases(quick: bool) -> list[case.Case]:
  """Each model of each size on one GPU, and the large ones on eight."""
  names = [f'{model}_{size}' for size in SIZES for model in MODELS]
  meshes = [(name, '', {'data': 1}) for name in names]
  meshes += [
    (name, EIGHT, {'data': 1, 'fsdp': 8})
    for name in names
    if name.endswith(SIZES[1])
  ]
  listed = [predicted(*one, quick) for one in meshes]
  listed += [
    predicted(STEP, f', {way}', {'data': 1}, quick, changes)
    for way, changes in WAYS.items()
  ]
  return listed[: 1 if quick else None]


def small(name: str) -> dict[str, Any]:
  """Changes of a config of configs/large.py, to see that it runs on a CPU."""
  of_cell = {'transformer': {'recurrence.impl': 'blocked'}}
  return SMALL | of_cell.get(name.rpartition('_')[0], {})


def predicted(
  name: str,
  label: str,
  mesh: dict[str, int],
  quick: bool,
  changes: dict[str, Any] | None = None,
) -> case.Case:
  """The case of a config of configs/large.py on a mesh, with changed keys."""
  devices = 1
  for size in mesh.values():
    devices *= size
  # Heads that devices share have norms without a scale, as all would share it.
  of_mesh = {'cell.norm_scale': False} if mesh.get('tensor', 1) > 1 else {}
  changes = of_mesh | (changes or {}) | (small(name) if quick else {})
  rows = ROWS * devices
  return case.Case(
    f'{name}{label}',
    'suites.large.step',
    {
      'config': ['large', name, changes],
      'mesh': mesh,
      'rows': 2 * devices if quick else rows,
      'target': TARGET,
    },
    environment=ENVIRONMENT,
    repeats=0,
    timeout=TIMEOUT,
  )


def step(
  config: list[Any], mesh: dict[str, int], rows: int, target: str
) -> tables.Row:
  """A training step's memory, and what is predicted of its time.

  Args:
    config: arguments of configs.parse.
    mesh: {axis: size}.
    rows: of the whole batch.
    target: a GPU.
  """
  import os

  from benchmarks.workloads import configs
  from rnn_jax.parallel import axes
  from rnn_jax.planning import program as program_lib
  from rnn_jax.planning import step_time
  from rnn_jax.profiling import hlo
  from rnn_jax.profiling import kernel_times
  from rnn_jax.profiling import pallas_costs
  from rnn_jax.profiling import sent
  from rnn_jax.system import devices as devices_lib
  from rnn_jax.system import target as target_lib

  os.environ['RNN_JAX_NATIVE'] = '0'  # GPUs don't have it either
  with target_lib.using(target):
    parsed = program_lib.with_mesh(configs.parse(*config), mesh)
    made = program_lib.workload(parsed)
    traced = made.programs.trace_train(rows, parsed.data.length)
    executable = target_lib.compiled(traced)
    program = hlo.Program(executable.as_text())
    sizes = [made.programs.mesh.shape[name] for name in axes.NAMES]
    device = devices_lib.find(target)
    kernels = pallas_costs.of(traced.jaxpr)
    times = kernel_times.of(program, device, kernels)
    memory = target_lib.memory(executable)
    return {
      'predicted': kernel_times.of_step(made, rows, program, traced.jaxpr),
      'unmatched': pallas_costs.unmatched(program, kernels),
      'step': step_time.of(program, times, sizes, device)._asdict(),
      'sent': [part._asdict() for part in sent.of(program, sizes)],
      'memory': memory._asdict() | {'total': memory.total},
      'parameters': program_lib.parameters(made),
      'length': parsed.data.length,
      'devices': made.programs.mesh.size,
      'kept': list(parsed.remat.keep),
    }


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Tables of each size: whole steps, and what they are made of."""
  del plots
  yield calibration.sentence()
  good = {name: row for name, row in rows.items() if 'predicted' in row}
  for size in SIZES:
    some = {
      name.removesuffix(f'_{size}'): row
      for name, row in good.items()
      if name.endswith(size)
    }
    if some:
      yield (
        f'**{size}**, one {TARGET}, {ROWS} rows: predicted, not measured. '
        'At the limit, kernels would reach the peak figures.'
      )
      others = OTHERS if size == SIZES[-1] else {}
      some = {name: row | {'model': name} for name, row in some.items()}
      yield tables.by_row('model', some, COLUMNS | others)
      yield 'Milliseconds of a step by its parts, predicted:'
      yield tables.by_row('model', some, {x: _part(x) for x in PARTS})
  ways = {'as configured': good.get(STEP)} | {
    way: good.get(f'{STEP}, {way}') for way in WAYS
  }
  if all(ways.values()):
    yield f'**{STEP}**, other ways to compute its step: predicted.'
    yield tables.by_row('step', ways, COLUMNS)
  eight = {
    name.removesuffix(EIGHT): row
    for name, row in good.items()
    if name.endswith(EIGHT)
  }
  if eight:
    yield f'**Eight {TARGET}s**, fsdp 8, 128 rows: predicted.'
    yield tables.by_row('config', eight, COLUMNS_OF_EIGHT)


def seconds(row: tables.Row) -> float:
  """The predicted seconds of a step, sending included."""
  return row['predicted']['seconds'] + sum(row['step']['exposed'].values())


def _memory(row):
  return f'{row["memory"]["total"] / 2**30:.1f} GiB'


def _part(name):
  def cell(row):
    part = row['predicted']['parts'].get(name)
    return f'{part["seconds"] * 1e3:,.0f}' if part else '-'

  return cell


def _at_limit(row):
  predicted = row['predicted']
  tokens = predicted['tokens_per_second'] * predicted['seconds']
  return tables.rate(tokens / predicted['limit_seconds'])


def rate(row: tables.Row) -> float:
  """The predicted tokens per second of a GPU, sending included."""
  predicted = row['predicted']
  tokens = predicted['tokens_per_second'] * predicted['seconds']
  return tokens / seconds(row)


COLUMNS = {
  'parameters': lambda row: f'{row["parameters"]:,}',
  'memory': _memory,
  'stored': lambda row: ', '.join(row['kept']) or 'all',
  'tokens/s, predicted': lambda row: tables.rate(rate(row)),
  'at the limit': _at_limit,
  'MFU': lambda row: f'{row["predicted"]["mfu"]:.0%}',
  'MBU': lambda row: f'{row["predicted"]["mbu"]:.0%}',
  'kernels': lambda row: f'{row["predicted"]["launches"]:,}',
}
COLUMNS_OF_EIGHT = {
  'memory': _memory,
  'step': lambda row: tables.seconds(seconds(row)),
  'of it sending': lambda row: tables.seconds(
    sum(row['step']['exposed'].values())
  ),
  'tokens/s of a GPU, predicted': lambda row: tables.rate(rate(row)),
}


def _published(place):
  def cell(row):
    return tables.rate(PUBLISHED.get(row['model'], (None, None))[place])

  return cell


OTHERS = {
  'jax-linear-attention 0.1.0, measured': _published(0),
  'flash-linear-attention, measured': _published(1),
}
