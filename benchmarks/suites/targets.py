"""The memory of training steps by the compilers of GPUs that aren't attached.

Beside it what the CPU's compiler says of the same step. Nothing runs.

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


def cases(quick: bool) -> list[case.Case]:
  """Each config."""
  return [
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


def memory(config: list[Any], rows: int, targets: list[str]) -> tables.Row:
  """Bytes of a training step, by the compiler of each target and the CPU's.

  Args:
    config: arguments of configs.parse.
    rows: of a batch.
    targets: GPUs.
  """
  import os

  from benchmarks.workloads import configs
  from rnn_jax import target as target_lib
  from rnn_jax.profiling import workload
  from rnn_jax.training.memory import program

  os.environ['RNN_JAX_NATIVE'] = '0'  # GPUs don't have it either
  parsed = configs.parse(*config)
  memory = {}
  for name in ('', *targets):
    with target_lib.using(name):
      made = workload.make(parsed)
      compiled = made.programs.compile_train(rows, parsed.data.length)
      size = program.of(compiled)
    memory[name or 'cpu'] = size._asdict() | {'total': size.total}
  return {'memory': memory, 'length': parsed.data.length}


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
  """A table of all configs."""
  del plots
  yield tables.provenance(rows)
  yield tables.by_row(
    'config',
    rows,
    {
      'rows': lambda row: f'{row["parameters"]["rows"]} of {row["length"]:,}',
      **{name: _size(name) for name in TARGETS},
      "CPU's compiler": _size('cpu'),
      'over H100': lambda row: tables.times(
        row['memory']['cpu']['total'] / row['memory']['h100']['total']
      ),
    },
  )


def _size(name):
  return lambda row: tables.mebibytes(row['memory'][name]['total'])
