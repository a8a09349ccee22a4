"""Training steps of small models on meshes of virtual devices."""

import tempfile

import grain
import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.profiling import collectives
from rnn_jax.profiling import workload
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.tasks import language_modeling
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import train_state
from rnn_jax.training.memory import batch_size
from tests.support import virtual

ROWS, LENGTH, STEPS = 16, 16, 5
CELLS = {
  'simple_rnn': {'heads': 4, 'key_width': 4, 'value_width': 4},
  'attention': {'heads': 4, 'head_width': 4, 'biases': True},
  'lstm': {},
  'gru': {},
  'min_lstm': {},
  'qrnn': {},
  'rhn': {},
}
CARRIED = 'simple_rnn, carried'  # the state goes from batch to batch
ONE = {'data': 1}
FORMS = {
  'copies': {'data': 4},
  'zero 1': {'data': 2, 'fsdp': 4, 'zero': 1},
  'zero 2': {'data': 2, 'fsdp': 4, 'zero': 2},
  'zero 3': {'data': 2, 'fsdp': 4},
  'zero 3 and tensor': {'data': 2, 'fsdp': 2, 'tensor': 2},
  'zero 3 and pipe': {'data': 1, 'fsdp': 2, 'pipe': 2, 'micro_batches': 4},
  'copies and 1f1b': {
    'data': 2,
    'pipe': 2,
    'micro_batches': 4,
    'schedule': '1f1b',
  },
  'copies and sequence': {'data': 2, 'sequence': 4},
  'sequence and tensor': {'data': 1, 'sequence': 2, 'tensor': 2},
}
# Copies and FSDP shards of the model are the same for each cell. So cells
# after the first are only tested where heads, steps or layers are sharded. The
# LSTM has no heads, and runs a row step by step.
FORMS_OF = {
  'simple_rnn': tuple(FORMS),
  'attention': ('zero 3 and tensor', 'sequence and tensor'),
  'lstm': ('copies and 1f1b',),
  'gru': ('zero 3',),
  'min_lstm': ('zero 3',),
  'qrnn': ('zero 3 and pipe',),
  'rhn': ('zero 3',),
  CARRIED: ('zero 3 and pipe', 'sequence and tensor'),
}


def config(cell, mesh, width=16):
  """Returns the Config of a small model of that cell on a mesh."""
  carried, cell = cell == CARRIED, cell.partition(',')[0]
  raw = config_lib.default(cell)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='stream')
  raw.data.carry_state = carried
  raw.model.update(width=width, mlp_width=32, biases=True, norm='layer')
  raw.cell.update(CELLS[cell])
  raw.mesh.update(mesh)
  raw.schedule.warmup_steps = 2
  raw.optimizer.eps = 1e-3  # else Adam turns rounding into whole steps
  return config_lib.parse(raw)


def programs(cell, mesh, width=16):
  """Returns that Config and its Programs, on the first devices."""
  parsed = config(cell, mesh, width)
  count = int(
    np.prod([getattr(parsed.mesh, n) for n in mesh if n in axes.NAMES])
  )
  placed = mesh_lib.make(parsed.mesh, jax.devices()[:count])
  task = language_modeling.make(parsed, tokenizer.Bytes())
  return parsed, programs_lib.Programs(task, parsed, placed)


def draw(parsed, made, n):
  """Returns batch n; some of its rows continue those of the batch before."""
  batch = workload.random_batch(parsed, made.task.model.vocabulary, ROWS, n)
  batch.starts_BxL[::2, 0] = 0
  batch.starts_BxL[::3, LENGTH // 2 + 1] = 1
  return mesh_lib.put(batch, made.batch_sharding)


def train_on(parsed, made, state, numbers):
  """Trains on the batches of these numbers. Returns (state, losses)."""
  losses = []
  for n in numbers:
    state, values = made.train_step(state, draw(parsed, made, n))
    losses.append(float(values['sums']['loss']))
  return state, losses


def train(cell, mesh):
  """Returns (Programs, parameters, losses) of a few steps."""
  parsed, made = programs(cell, mesh)
  state, losses = train_on(parsed, made, made.init(0, ROWS), range(STEPS))
  batch = draw(parsed, made, STEPS)
  _, sums = made.evaluate_step(state.params, made.init_carry(ROWS), batch)
  return made, jax.device_get(state.params), [*losses, float(sums['loss'])]


def restored(folder):
  """Saves a state on one mesh and restores it on others.

  Returns {mesh: (whether it is the same, the difference of parameters from an
  uninterrupted run of one device after more steps)}.
  """
  parsed, made = programs(CARRIED, FORMS['zero 3 and tensor'])
  state, _ = train_on(parsed, made, made.init(0, ROWS), range(2))
  saved = jax.device_get(state)
  folder = checkpoint.Checkpoints(folder, 1)
  position = iter(grain.MapDataset.range(9).to_iter_dataset())
  folder.save(2, state.entries(), position, {})
  folder.wait()
  _, uninterrupted, _ = train(CARRIED, ONE)
  results = {}
  for mesh in (ONE, FORMS['zero 1'], FORMS['zero 3 and pipe']):
    parsed, made = programs(CARRIED, mesh)
    _, entries, _ = folder.restore(made.init(1, ROWS).entries())
    state = train_state.TrainState(**entries)
    same = jax.tree.map(np.array_equal, saved, jax.device_get(state))
    state, _ = train_on(parsed, made, state, range(2, STEPS))
    params = jax.device_get(state.params)
    results[str(mesh)] = (
      jax.tree.all(same),
      largest_difference(uninterrupted, params),
    )
  folder.close()
  return results


def largest_difference(a, b):
  """Returns the largest of two trees, or lists of numbers."""
  differences = jax.tree.map(lambda x, y: np.max(np.abs(x - y)), a, b)
  return float(max(jax.tree.leaves(differences)))


def communication(made):
  """Returns the collectives of a step: {opcode: largest bytes}."""
  text = made.compile_train(ROWS, LENGTH).as_text()
  largest = {}
  for operation in collectives.collectives(text):
    largest[operation.opcode] = max(
      operation.bytes, largest.get(operation.opcode, 0)
    )
  return largest


def state_bytes(zero):
  """Returns bytes of one of eight devices, and of a single device."""
  mesh = {'data': 1, 'fsdp': virtual.DEVICES, 'zero': zero}
  _, made = programs('simple_rnn', mesh, width=256)
  state = jax.eval_shape(lambda: made.init(0, ROWS))
  where, params = made.placement, state.params
  parts = {
    'parameters': (params, where.shardings('parameters')),
    'gradients': (params, where.shardings('gradients')),
    'optimizer': (state.opt_state, where.optimizer_shardings(state.opt_state)),
  }
  return {
    name: (placement.device_bytes(*part), batch_size.tree_bytes(part[0]))
    for name, part in parts.items()
  }


def measure():
  """Returns all that the tests compare."""
  with tempfile.TemporaryDirectory() as folder:
    results = {
      'bytes': {zero: state_bytes(zero) for zero in range(4)},
      'restored': restored(folder),
    }
  for cell, forms in FORMS_OF.items():
    _, params, losses = train(cell, ONE)
    for form in forms:
      made, others, other_losses = train(cell, FORMS[form])
      results[f'{cell}, {form}'] = {
        'params': largest_difference(params, others),
        'losses': largest_difference(losses, other_losses) / losses[0],
        'collectives': communication(made) if cell == 'simple_rnn' else {},
      }
  return results
