"""Training steps of an image model, and of shared layers, on meshes."""

import importlib

from rnn_jax import config as config_lib
from rnn_jax.profiling import workload
from tests.parallel import forms

ROWS = 8
ONE = {'data': 1}
# What a form does to a model, it does with other forms beside it.
FORMS = {
  'vit': (
    'zero 3, pipe and tensor',
    {'data': 1, 'fsdp': 2, 'pipe': 2, 'tensor': 2},
  ),
  'bdh': (  # the language model
    'zero 3, sequence and tensor',
    {'data': 1, 'fsdp': 2, 'sequence': 2, 'tensor': 2},
  ),
}


def config(model, mesh):
  """The Config of a small model on a mesh."""
  if model == 'bdh':
    raw = importlib.import_module('configs.bdh').get_config('small')
    raw.data.update(length=8)
    raw.cell.update(dropout=0.0, heads=2, neurons=8)
  else:
    raw = importlib.import_module('configs.cifar10_bdh').get_config('vit')
    raw.data.image.size = 8
    raw.data.classes = tuple('abc')
    raw.train.update(accumulate=1, precision='float32')
    raw.model.mlp_width = 16
    raw.cell.update(heads=2, head_width=4)
  raw.data.batch_size = ROWS
  raw.model.update(width=8, layers=2, unroll=1)
  raw.mesh.update(mesh)
  raw.train.steps = 20
  raw.optimizer.update(name='sgd', learning_rate=0.1)
  raw.schedule.warmup_steps = 1
  return config_lib.parse(raw)


def train(model, mesh, first=None):
  """Returns forms.few_steps of a model on a mesh."""
  parsed = config(model, mesh)
  return forms.few_steps(
    parsed, lambda n: workload.random_batch(parsed, 257, ROWS, n), first
  )


def measure():
  """Differences of each form from one device: {case: (params, losses)}."""
  differences = {}
  for model, (form, mesh) in FORMS.items():
    first, params, sums, _ = train(model, ONE)
    _, others, other_sums, _ = train(model, mesh, first)
    losses, other_losses = ([x['loss'] for x in y] for y in (sums, other_sums))
    differences[f'{model}, {form}'] = (
      forms.largest_difference(params, others),
      forms.largest_difference(losses, other_losses) / losses[0],
    )
  return differences
