"""Training steps of small models on meshes of virtual devices.

  python -m tests.parallel.forms RESULT.json

runs them on eight devices and writes what tests compare.
"""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data import tokenizer
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.profiling import collectives
from rnn_jax.profiling import subject
from rnn_jax.tasks import language_modeling
from rnn_jax.training import memory
from rnn_jax.training import step as step_lib
from tests import tiny

DEVICES, ROWS, LENGTH, STEPS = 8, 16, 16, 5
CELLS = {
  'simple_rnn': {'heads': 4, 'key_width': 4, 'value_width': 4},
  'attention': {'heads': 4, 'head_width': 4, 'biases': True},
  'lstm': {},
}
ALONE = {'data': 1}
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
# The LSTM has no heads, and reads a row step by step.
LACKING = {'lstm': {'tensor', 'sequence'}}


def config(cell, mesh, width=16):
  """The Config of a small model of that cell on a mesh."""
  raw = config_lib.default(cell)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='packed')
  raw.model.update(width=width, mlp_width=32, biases=True, norm='layer')
  raw.cell.update(CELLS[cell])
  raw.mesh.update(mesh)
  raw.schedule.warmup_steps = 2
  raw.optimizer.eps = 1e-3  # else Adam turns rounding into whole steps
  return config_lib.parse(raw)


def steps(cell, mesh, width=16):
  """Its Steps, on the first devices."""
  parsed = config(cell, mesh, width)
  count = int(
    np.prod([getattr(parsed.mesh, n) for n in mesh if n in axes.NAMES])
  )
  placed = mesh_lib.make(parsed.mesh, jax.devices()[:count])
  task = language_modeling.make(parsed, tokenizer.Bytes())
  return parsed, step_lib.Steps(task, parsed, placed)


def train(cell, mesh):
  """Parameters and losses of a few steps. Returns (Steps, params, losses)."""
  parsed, made = steps(cell, mesh)
  state, losses = made.init(0, ROWS), []
  for n in range(STEPS):
    batch = subject.random_batch(parsed, made.task.model.vocabulary, ROWS, n)
    batch = mesh_lib.put(batch, made.batch_sharding)
    state, values = made.train(state, batch)
    losses.append(float(values['sums']['loss']))
  _, sums = made.evaluate(state['params'], made.init_carry(ROWS), batch)
  return made, jax.device_get(state['params']), [*losses, float(sums['loss'])]


def largest_difference(a, b):
  """Of two trees, or lists of numbers."""
  differences = jax.tree.map(lambda x, y: np.max(np.abs(x - y)), a, b)
  return float(max(jax.tree.leaves(differences)))


def told(made):
  """What devices tell each other in a step: {opcode: largest bytes}."""
  text = made.compile_train(ROWS, LENGTH).as_text()
  largest = {}
  for found in collectives.collectives(text):
    largest[found.opcode] = max(found.bytes, largest.get(found.opcode, 0))
  return largest


def kept(zero):
  """Bytes that one of eight devices keeps, and that one alone keeps."""
  mesh = {'data': 1, 'fsdp': DEVICES, 'zero': zero}
  _, made = steps('simple_rnn', mesh, width=256)
  state = jax.eval_shape(lambda: made.init(0, ROWS))
  where, params = made.placement, state['params']
  parts = {
    'parameters': (params, where.shardings('parameters')),
    'gradients': (params, where.shardings('gradients')),
    'optimizer': (state['optimizer'], where.of_optimizer(state['optimizer'])),
  }
  return {
    name: (placement.device_bytes(*part), memory.tree_bytes(part[0]))
    for name, part in parts.items()
  }


def main(path):
  found = {'kept': {zero: kept(zero) for zero in range(4)}}
  for cell in CELLS:
    _, params, losses = train(cell, ALONE)
    for form, mesh in FORMS.items():
      if LACKING.get(cell, set()) & {*mesh}:
        continue
      made, others, other_losses = train(cell, mesh)
      found[f'{cell}, {form}'] = {
        'params': largest_difference(params, others),
        'losses': largest_difference(losses, other_losses) / losses[0],
        'told': told(made) if cell == 'simple_rnn' else {},
      }
      print(cell, form, found[f'{cell}, {form}'], flush=True)
  pathlib.Path(path).write_text(json.dumps(found))


def run(path):
  """Runs this file on virtual devices. Returns what it wrote."""
  environment = os.environ | {
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={DEVICES} '
    '--xla_backend_optimization_level=0',
    'JAX_PLATFORMS': 'cpu',
  }
  command = [sys.executable, '-m', 'tests.parallel.forms', str(path)]
  subprocess.run(
    command, cwd=tiny.ROOT, env=environment, check=True, timeout=900
  )
  return json.loads(path.read_text())


if __name__ == '__main__':
  main(sys.argv[1])
