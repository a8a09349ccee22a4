"""Training steps on a mesh beside those of one device."""

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data import tokenizer
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.profiling import collectives
from rnn_jax.profiling import subject
from rnn_jax.tasks import language_modeling
from rnn_jax.training import memory
from rnn_jax.training import program_memory
from rnn_jax.training import step as step_lib

ROWS, LENGTH, STEPS = 32, 64, 5
CELLS = {
  'simple_rnn': {'heads': 4, 'key_width': 16, 'value_width': 16},
  'attention': {'heads': 4, 'head_width': 16},
  'lstm': {},
}


def compare(repeats, cell, mesh):
  """How far parameters are apart after some steps; bytes a device.

  Args:
    repeats: unused: the numbers are the same each time.
    cell: a file of rnn_jax/cells.
    mesh: keys of the config's section `mesh`.
  """
  del repeats
  alone, wanted = _train(_config(cell, {}), jax.devices()[:1])
  steps, params = _train(_config(cell, mesh), jax.devices())
  program = steps.compile_train(ROWS, LENGTH)
  sent = collectives.wire_bytes(program.as_text())
  largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(wanted))
  differences = jax.tree.map(
    lambda x, y: float(np.max(np.abs(x - y))), wanted, params
  )
  return {
    'devices': jax.device_count(),
    'steps': STEPS,
    'difference': max(jax.tree.leaves(differences)),
    'largest_parameter': largest,
    'sent_bytes': sent,
    **_kept(steps),
    'temp_bytes': program_memory.of(program).temporaries,
    'temp_bytes_alone': program_memory.of(
      alone.compile_train(ROWS, LENGTH)
    ).temporaries,
  }


def _config(cell, mesh):
  raw = config_lib.default(cell)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='packed')
  raw.model.update(width=64, mlp_width=128)
  raw.cell.update(CELLS[cell])
  raw.schedule.warmup_steps = 2
  raw.optimizer.eps = 1e-3  # else Adam turns rounding into whole steps
  raw.mesh.update(mesh)
  return config_lib.parse(raw)


def _train(config, devices):
  mesh = mesh_lib.make(config.mesh, devices)
  task = language_modeling.make(config, tokenizer.Bytes())
  steps = step_lib.Steps(task, config, mesh)
  state = steps.init(0, ROWS)
  for n in range(STEPS):
    batch = subject.random_batch(config, tokenizer.Bytes().size, ROWS, n)
    batch = mesh_lib.put(batch, steps.batch_sharding)
    state, _ = steps.train(state, batch)
  return steps, jax.device_get(state['params'])


def _kept(steps):
  """Bytes that a device keeps between steps, and gradients, of how many."""
  state = jax.eval_shape(lambda: steps.init(0, ROWS))
  where, params = steps.placement, state['params']
  optimizer = state['optimizer']
  parts = {
    'parameter': (params, where.shardings('parameters')),
    'gradient': (params, where.shardings('gradients')),
    'optimizer': (optimizer, where.of_optimizer(optimizer)),
  }
  found = {}
  for name, part in parts.items():
    found[f'{name}_bytes'] = placement.device_bytes(*part)
    found[f'{name}_bytes_alone'] = memory.tree_bytes(part[0])
  return found
