"""The memory of training steps by the compilers of GPUs that aren't attached.

Beside it what the CPU's compiler says of the same step, and the largest batches
of images that fit in the memory for which Vision-BDH's recipe was published.
Nothing runs.

  python -m benchmarks.run --suite=targets

It needs the packages of cuda12 or cuda13, and no GPU.
"""

from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TARGETS = ('h100', 'b200', 'a100', 'l4')
REMAT = {'remat.every': 'sqrt', 'remat.layers': 1}
CONFIGS = {  # arguments of configs.parse, rows
  'stdlib_bytes': (['stdlib_bytes'], 32),
  'tiny_shakespeare': (['tiny_shakespeare'], 32),
  'published': (['published'], 32),
  'chatgot, small': (['chatgot', 'small'], 32),
  'chatgot, gpt2': (['chatgot', 'gpt2'], 32),
  'chatgot, gpt2, bfloat16': (
    ['chatgot', 'gpt2', {'train.precision': 'bfloat16'}],
    32,
  ),
  'chatgot, gpt2, remat and 8-bit moments': (
    ['chatgot', 'gpt2', REMAT | {'optimizer.moments': 'int8'}],
    32,
  ),
  'digits_bdh': (['digits_bdh'], 64),
}
LARGEST = 'largest batch: '
GIB = 8.0  # the published GPU's memory
FLOAT32 = {'train.precision': 'float32'}
SCANNED = {'model.unroll': 1}
PICTURES = {  # arguments of configs.parse
  'v1, float32, layers scanned': ['v1', FLOAT32 | SCANNED],
  'v1, float32': ['v1', FLOAT32],
  'v2': ['v2', {}],
  'v2, layers scanned': ['v2', SCANNED],
  'v2_softmax': ['v2_softmax', {}],
  'vit': ['vit', {}],
}


def cases(quick: bool) -> list[case.Case]:
  """Each config, then the largest batches of images."""
  listed = [
    case.Case(
      name,
      'suites.targets.memory',
      {
        'config': config,
        'rows': 2 if quick else rows,
        'targets': TARGETS[:1] if quick else TARGETS,
      },
      repeats=0,
    )
    for name, (config, rows) in [*CONFIGS.items()][: 1 if quick else None]
  ]
  listed += [
    case.Case(
      f'{LARGEST}{name}',
      'suites.targets.largest',
      {
        'config': ['cifar10_bdh', *config],
        'gib': GIB,
        'target': TARGETS[0],
      },
      repeats=0,
    )
    for name, config in [*PICTURES.items()][: 1 if quick else None]
  ]
  return listed


def memory(config: list[Any], rows: int, targets: list[str]) -> tables.Row:
  """Bytes of a training step, by the compiler of each target and the CPU's.

  Args:
    config: arguments of configs.parse.
    rows: of a batch.
    targets: GPUs.
  """
  import os

  from benchmarks.workloads import configs
  from rnn_jax.profiling import workload
  from rnn_jax.system import target as target_lib

  os.environ['RNN_JAX_NATIVE'] = '0'  # GPUs don't have it either
  parsed = configs.parse(*config)
  memory = {}
  for name in ('', *targets):
    with target_lib.using(name):
      made = workload.make(parsed)
      compiled = made.programs.compile_train(rows, parsed.data.length)
      size = target_lib.memory(compiled)
    memory[name or 'cpu'] = size._asdict() | {'total': size.total}
  return {'memory': memory, 'length': parsed.data.length}


def largest(config: list[Any], gib: float, target: str) -> tables.Row:
  """The rows of the largest batch that fits, by the target's compiler."""
  from benchmarks.workloads import configs
  from rnn_jax.profiling import batch_size
  from rnn_jax.profiling import workload
  from rnn_jax.system import target as target_lib
  from rnn_jax.training.memory import batch_size as batch_size_lib

  with target_lib.using(target):
    made = workload.make(configs.parse(*config))
    budget = batch_size_lib.gib(gib, 'gib')
    found = batch_size.find(made, budget, confirm=False)
  return {'largest': found.rows, 'total': found.memory[found.rows].total}


def predicted(parameters: tables.Row) -> list[tables.Row]:
  """The rows of `memory` with these parameters, the newest first."""
  from benchmarks.harness import rows

  return [
    row
    for row in reversed(rows.read('targets'))
    if parameters.items() <= row['parameters'].items() and 'memory' in row
  ]


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table of all configs, and one of the largest batches."""
  del plots
  found = dict(sorted(tables.with_prefix(rows, LARGEST).items()))
  steps = {
    name: row for name, row in rows.items() if not name.startswith(LARGEST)
  }
  yield tables.by_row(
    'config',
    steps,
    {
      'rows': lambda row: f'{row["parameters"]["rows"]} of {row["length"]:,}',
      **{name: _size(name) for name in TARGETS},
      "CPU's compiler": _size('cpu'),
      'over H100': lambda row: tables.times(
        row['memory']['cpu']['total'] / row['memory']['h100']['total']
      ),
    },
  )

  if found:
    yield f'Pictures of the largest batch in {GIB:g} GiB of an H100:'
    yield tables.by_row(
      'cifar10_bdh',
      found,
      {'images': lambda row: f'{row["largest"]:,}'},
    )


def _size(name):
  return lambda row: tables.mebibytes(row['memory'][name]['total'])
