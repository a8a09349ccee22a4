"""Parallel forms on eight devices: the same numbers, less on each of them.

Virtual devices of a CPU. A small model of each cell takes five steps on one
device and on a mesh; what devices keep and what they send each other is read
from the program. No time is taken: virtual devices share the cores.

  python -m benchmarks.run --suite=meshes          75 minutes on 2 cores
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

DEVICES = 8
FLAGS = f'--xla_force_host_platform_device_count={DEVICES}'
PIPE = {'pipe': 2, 'micro_batches': 4}
FORMS = {
  'data 8': {'data': 8},
  'data 8, int8 gradients': {'data': 8, 'compression': 'int8'},
  'fsdp 8, ZeRO 1': {'data': 1, 'fsdp': 8, 'zero': 1},
  'fsdp 8, ZeRO 2': {'data': 1, 'fsdp': 8, 'zero': 2},
  'fsdp 8, ZeRO 3': {'data': 1, 'fsdp': 8},
  'data 2, tensor 4': {'data': 2, 'tensor': 4},
  'data 4, pipe 2': {'data': 4, **PIPE},
  'data 4, pipe 2, 1F1B': {'data': 4, **PIPE, 'schedule': '1f1b'},
  'sequence 8': {'data': 1, 'sequence': 8},
  'data 2, fsdp 2, tensor 2': {'data': 2, 'fsdp': 2, 'tensor': 2},
  'data 2, fsdp 2, pipe 2': {'data': 2, 'fsdp': 2, **PIPE},
  'data 2, sequence 2, tensor 2': {'data': 2, 'sequence': 2, 'tensor': 2},
  'fsdp 2, pipe 2, sequence 2': {
    'data': 1,
    'fsdp': 2,
    'pipe': 2,
    'sequence': 2,
  },
}
ROWS, LENGTH, STEPS = 32, 64, 5
CELLS = {
  'simple_rnn': {'heads': 4, 'key_width': 16, 'value_width': 16},
  'lstm': {},
  'attention': {'heads': 4, 'head_width': 16},
}
# The LSTM has no heads, and reads a row step by step.
LACKING = {'lstm': {'tensor', 'sequence'}}
QUICK = ('data 8', 'fsdp 8, ZeRO 3')


def cases(quick: bool) -> list[case.Case]:
  """Each form, for each cell that has it."""
  return [
    case.Case(
      f'{cell}: {form}',
      'suites.meshes.compare',
      {'cell': cell, 'mesh': mesh},
      0,
      {'XLA_FLAGS': FLAGS},
    )
    for cell in [*CELLS][: 1 if quick else None]
    for form, mesh in FORMS.items()
    if not LACKING.get(cell, set()) & {*mesh}
    if not quick or form in QUICK
  ]


def compare(cell: str, mesh: tables.Row) -> tables.Row:
  """How far parameters are apart after some steps; bytes per device.

  Args:
    cell: a file of rnn_jax/cells.
    mesh: keys of the config's section `mesh`.
  """
  import jax
  import numpy as np

  from rnn_jax.profiling import collectives
  from rnn_jax.system import target

  one, wanted = _train(_config(cell, {}), jax.devices()[:1])
  programs, params = _train(_config(cell, mesh), jax.devices())
  temporaries = []
  for some in (one, programs):
    program = some.compile_train(ROWS, LENGTH)
    temporaries.append(target.memory(program).temporaries)
  largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(wanted))
  differences = jax.tree.map(
    lambda x, y: float(np.max(np.abs(x - y))), wanted, params
  )
  return {
    'devices': jax.device_count(),
    'steps': STEPS,
    'difference': max(jax.tree.leaves(differences)),
    'largest_parameter': largest,
    'sent_bytes': collectives.wire_bytes(program.as_text()),
    **_kept(programs),
    'temp_bytes': temporaries[1],
    'temp_bytes_alone': temporaries[0],
  }


def _config(cell, mesh):
  from rnn_jax import config as config_lib

  raw = config_lib.default(cell)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='packed')
  raw.model.update(width=64, mlp_width=128)
  raw.cell.update(CELLS[cell])
  raw.schedule.warmup_steps = 2
  raw.optimizer.eps = 1e-3  # else Adam turns rounding into whole steps
  raw.mesh.update(mesh)
  return config_lib.parse(raw)


def _train(config, devices):
  import jax

  from rnn_jax.data.text import tokenizer
  from rnn_jax.parallel import mesh as mesh_lib
  from rnn_jax.profiling import workload
  from rnn_jax.tasks import language_modeling
  from rnn_jax.training import programs as programs_lib

  task = language_modeling.make(config, tokenizer.Bytes())
  programs = programs_lib.Programs(
    task, config, mesh_lib.make(config.mesh, devices)
  )
  state = programs.states.init(ROWS)
  for n in range(STEPS):
    batch = workload.random_batch(config, tokenizer.Bytes().size, ROWS, n)
    batch = mesh_lib.put(batch, programs.batch_sharding)
    state, _ = programs.train_step(state, batch)
  return programs, jax.device_get(state.params)


def _kept(programs):
  """What a device keeps between steps, and its gradients; bytes, and of all."""
  import jax

  from rnn_jax.parallel import placement
  from rnn_jax.training.memory import batch_size

  state = jax.eval_shape(lambda: programs.states.init(ROWS))
  where, params = programs.states.placement, state.params
  optimizer = state.opt_state
  kept = {}
  for name, part in {
    'parameter': (params, where.shardings('parameters')),
    'gradient': (params, where.shardings('gradients')),
    'optimizer': (optimizer, where.optimizer_shardings(optimizer)),
  }.items():
    kept[f'{name}_bytes'] = placement.device_bytes(*part)
    kept[f'{name}_bytes_alone'] = batch_size.tree_bytes(part[0])
  return kept


def _share(key):
  return lambda row: f'{row[f"{key}_bytes"] / row[f"{key}_bytes_alone"]:.1%}'


def _sent(row):
  return ', '.join(
    f'{opcode.removeprefix("collective-")} {count / 1024:,.0f} KiB'
    for opcode, count in sorted(row['sent_bytes'].items())
  )


COLUMNS = {
  'difference': lambda row: f'{row["difference"]:.1e}',
  'parameters': _share('parameter'),
  'gradients': _share('gradient'),
  'optimizer': _share('optimizer'),
  'temporaries': _share('temp'),
  'sent per step': _sent,
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table for each cell: the difference, and shares of one device's bytes."""
  for cell in dict.fromkeys(name.partition(':')[0] for name in rows):
    yield f'**{cell}**'
    yield tables.by_row('mesh', tables.with_prefix(rows, f'{cell}: '), COLUMNS)
