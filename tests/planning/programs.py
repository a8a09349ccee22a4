"""Plans of a tiny model on eight virtual devices, for test_program.py."""

import os
from unittest import mock

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import predict
from rnn_jax.planning import program
from rnn_jax.planning import search
from rnn_jax.system import devices
from tests.support import tiny

ROWS = 32
MESHES = {
  'fsdp': {'data': 4, 'fsdp': 2},
  'tensor': {'data': 2, 'tensor': 2},
  'pipe': {'data': 2, 'pipe': 2},
}


def config():
  raw = tiny.raw_config('unused')
  raw.model.layers = 2
  raw.recurrence.impl = 'scan'  # the smallest program
  raw.optimizer.name = 'sgd'
  return config_lib.parse(raw)


def read(sizes):
  """A compiled mesh, what its buffers take, and its gradients' bytes."""
  made = program.workload(program.with_mesh(config(), sizes))
  result, _ = program.compiled(made, ROWS)
  state = made.programs.states.like().entries()
  state = jax.tree.map(
    lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding), state
  )
  batch = made.batch(ROWS)
  device = made.programs.mesh.devices.flat[-1]
  held = sum(
    shard.data.nbytes
    for x in jax.tree.leaves((state, batch))
    for shard in x.addressable_shards
    if shard.device == device
  )
  return {
    'flops': sum(result.flops.values()),
    'sent': [[*part] for part in result.sent],
    'memory': result.memory.total,
    'arguments': result.memory.arguments,
    'held': held,
    'bubble': result.bubble,
    'parameters': result.parameters,
    'step': predict.predict(result, devices.KNOWN['h100'], 1.0).step,
  }


def candidates():
  """All for 8 devices: (sizes, why it is refused, seconds)."""
  h100 = devices.KNOWN['h100']
  request = plan_lib.Request(config(), {}, 8, h100, ROWS)
  result = search.candidates(request, search.model(request))
  return [
    [one.sizes, one.refused, 0 if one.refused else one.step] for one in result
  ]


def measure():
  """Returns what the tests read of all meshes."""
  with mock.patch.dict(os.environ):
    program.claim(8)
    values = {name: read(sizes) for name, sizes in MESHES.items()}
    counted, state = program.of_one_device(config(), ROWS)
    values['one device'] = {'flops': sum(counted.values()), 'state': state}
    values['candidates'] = candidates()
    return values
