"""Training steps of image models, and of shared layers, on meshes."""

import importlib

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.profiling import workload
from rnn_jax.training import programs as programs_lib

ROWS, STEPS = 8, 3
ONE = {'data': 1}
FORMS = {
  'bdh': {
    'copies': {'data': 4},
    'zero 3': {'data': 2, 'fsdp': 2},
    'zero 3 and tensor': {'data': 1, 'fsdp': 2, 'tensor': 2},
  },
  'vit': {
    'zero 3 and tensor': {'data': 1, 'fsdp': 2, 'tensor': 2},
    'copies and pipe': {'data': 2, 'pipe': 2},
  },
  'text': {  # the language model
    'zero 3 and tensor': {'data': 1, 'fsdp': 2, 'tensor': 2},
    'copies and sequence': {'data': 2, 'sequence': 2},
  },
}


def config(model, mesh):
  """The Config of a small model on a mesh."""
  if model == 'text':
    raw = importlib.import_module('configs.bdh').get_config('small')
    raw.data.update(length=8)
    raw.cell.dropout = 0.0
  else:
    name = {'bdh': 'v2_token', 'vit': 'vit'}[model]
    raw = importlib.import_module('configs.cifar10_bdh').get_config(name)
    raw.data.image.size = 8
    raw.data.classes = tuple('abc')
    raw.train.update(accumulate=1, precision='float32')
  raw.data.batch_size = ROWS
  raw.model.update(width=8, layers=2)
  if model == 'vit':
    raw.model.mlp_width = 16
    raw.cell.update(heads=2, head_width=4)
  else:
    raw.cell.update(heads=2, neurons=8)
  raw.mesh.update(mesh)
  raw.train.steps = 20
  raw.optimizer.update(learning_rate=1e-2, eps=1e-3)
  raw.schedule.warmup_steps = 1
  return config_lib.parse(raw)


def train(model, mesh):
  """Returns (parameters, losses) of a few steps and an evaluation."""
  parsed = config(model, mesh)
  sizes = [getattr(parsed.mesh, name) for name in mesh if name in axes.NAMES]
  devices = jax.devices()[: int(np.prod(sizes))]
  made = programs_lib.from_config(parsed, tokenizer.Bytes(), devices)

  def draw(n):
    batch = workload.random_batch(parsed, 257, ROWS, n)
    return mesh_lib.put(batch, made.batch_sharding)

  state, losses = made.init(0, ROWS), []
  for n in range(STEPS):
    state, values = made.train_step(state, draw(n))
    losses.append(float(values['sums']['loss']))
  _, sums = made.evaluate_step(state.params, None, draw(STEPS))
  return jax.device_get(state.params), [*losses, float(sums['loss'])]


def measure():
  """Differences of each form from one device: {case: (params, losses)}."""
  differences = {}
  for model, forms in FORMS.items():
    params, losses = train(model, ONE)
    for form, mesh in forms.items():
      others, other_losses = train(model, mesh)
      of_params = jax.tree.map(
        lambda a, b: np.max(np.abs(a - b)), params, others
      )
      of_losses = np.max(np.abs(np.subtract(losses, other_losses)))
      differences[f'{model}, {form}'] = (
        float(max(jax.tree.leaves(of_params))),
        float(of_losses / losses[0]),
      )
  return differences
