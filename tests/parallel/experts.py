"""Training steps of a model with experts on meshes of devices."""

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.profiling import workload
from rnn_jax.training import programs as programs_lib
from tests.parallel import forms

ROWS, LENGTH, STEPS = 8, 8, 3
ONE = {'data': 1}
FORMS = {
  'expert and tensor': {'data': 2, 'expert': 2, 'tensor': 2},
  'zero 3 and expert': {'data': 1, 'fsdp': 2, 'expert': 4},
  'expert and sequence': {'data': 1, 'expert': 4, 'sequence': 2},
}


def config(mesh):
  """The Config of a small model on a mesh."""
  raw = config_lib.default('simple_rnn')
  raw.cell.update(heads=2, key_width=4, value_width=4)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='packed')
  raw.model.update(width=16, mlp_width=8, layers=2)
  raw.model.experts.update(count=4, balance=0.1, shared_width=4)
  raw.mesh.update(mesh)
  raw.schedule.warmup_steps = 1
  raw.optimizer.eps = 1e-3  # else Adam turns rounding into whole steps
  return config_lib.parse(raw)


def draw(parsed, made, n):
  """Returns batch n; rows end in padding, of some a shard of time or more."""
  batch = workload.random_batch(parsed, 257, ROWS, n)
  for row in range(ROWS):
    batch.weights_BxL[row, LENGTH - row % 6 :] = 0
  batch.weights_BxL[0, :5] = 0  # a prompt
  return mesh_lib.put(batch, made.batch_sharding)


def train(mesh, first=None):
  """Returns (first state, parameters, sums) of steps and an evaluation."""
  parsed = config(mesh)
  sizes = [getattr(parsed.mesh, name) for name in mesh if name in axes.NAMES]
  devices = jax.devices()[: int(np.prod(sizes))]
  made = programs_lib.from_config(parsed, tokenizer.Bytes(), devices)
  first = first or jax.device_get(made.init(0, ROWS))
  step = made.compile_train(ROWS, LENGTH)
  ((shardings, _), _) = step.input_shardings
  state, sums = jax.device_put(first, shardings), []
  for n in range(STEPS):
    state, values = jax.block_until_ready(step(state, draw(parsed, made, n)))
    sums.append(values['sums'])
  _, evaluated = made.evaluate_step(
    state.params, None, draw(parsed, made, STEPS)
  )
  kernel = state.params['stack']['blocks']['experts']['up']['kernel']
  own = kernel.addressable_shards[0].data.shape
  sums = jax.tree.map(float, jax.device_get([*sums, evaluated]))
  return first, jax.device_get(state.params), (sums, own)


def measure():
  """Returns {form: (differences of parameters and sums, a device's shard)}."""
  first, params, (sums, _) = train(ONE)
  results = {}
  for form, mesh in FORMS.items():
    _, others, (other_sums, own) = train(mesh, first)
    off = max(
      abs(a[name] - b[name]) / max(abs(a[name]), 1)
      for a, b in zip(sums, other_sums, strict=True)
      for name in a
    )
    results[form] = forms.largest_difference(params, others), off, own
  return results
