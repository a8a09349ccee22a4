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
# What a form does to a model, it does with other forms beside it.
FORMS = {
  'bdh': ('zero 3 and tensor', {'data': 1, 'fsdp': 2, 'tensor': 2}),
  'vit': (
    'zero 3, pipe and tensor',
    {'data': 1, 'fsdp': 2, 'pipe': 2, 'tensor': 2},
  ),
  'text': (  # the language model
    'zero 3, sequence and tensor',
    {'data': 1, 'fsdp': 2, 'sequence': 2, 'tensor': 2},
  ),
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


def train(model, mesh, first=None):
  """Returns (first state, parameters, losses) of steps and an evaluation."""
  parsed = config(model, mesh)
  sizes = [getattr(parsed.mesh, name) for name in mesh if name in axes.NAMES]
  devices = jax.devices()[: int(np.prod(sizes))]
  made = programs_lib.from_config(parsed, tokenizer.Bytes(), devices)

  def draw(n):
    batch = workload.random_batch(parsed, 257, ROWS, n)
    return mesh_lib.put(batch, made.batch_sharding)

  first = first or jax.device_get(made.init(0, ROWS))
  batch = draw(0)
  step = made.compile_train(*batch.weights_BxL.shape)
  ((shardings, _), _) = step.input_shardings
  state, losses = jax.device_put(first, shardings), []
  for n in range(STEPS):
    state, values = jax.block_until_ready(step(state, draw(n)))
    losses.append(float(values['sums']['loss']))
  _, sums = made.evaluate_step(state.params, None, draw(STEPS))
  losses.append(float(sums['loss']))
  return first, jax.device_get(state.params), losses


def measure():
  """Differences of each form from one device: {case: (params, losses)}."""
  differences = {}
  for model, (form, mesh) in FORMS.items():
    first, params, losses = train(model, ONE)
    _, others, other_losses = train(model, mesh, first)
    of_params = jax.tree.map(lambda a, b: np.max(np.abs(a - b)), params, others)
    of_losses = np.max(np.abs(np.subtract(losses, other_losses)))
    differences[f'{model}, {form}'] = (
      float(max(jax.tree.leaves(of_params))),
      float(of_losses / losses[0]),
    )
  return differences
