"""Plans of a tiny model on 16 virtual devices, printed as JSON.

test_program.py runs it in a process of its own.
"""

import json

import jax

from rnn_jax import config as config_lib
from rnn_jax.planning import devices
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import predict
from rnn_jax.planning import program
from rnn_jax.planning import search
from tests import tiny

ROWS = 32
MESHES = {
  'fsdp': {'data': 4, 'fsdp': 2},
  'tensor': {'data': 2, 'tensor': 2},
  'pipe': {'data': 2, 'pipe': 2},
}


def config():
  raw = tiny.raw_config('unused')
  raw.model.layers = 2
  return config_lib.parse(raw)


def read(sizes):
  """A compiled mesh, what its buffers take, and its gradients' bytes."""
  made = program.subject(program.with_mesh(config(), sizes))
  found, _ = program.compiled(made, ROWS)
  state = made.steps.init(0, ROWS)
  batch = made.batch(ROWS)
  device = made.steps.mesh.devices.flat[-1]
  held = sum(
    shard.data.nbytes
    for x in jax.tree.leaves((state, batch))
    for shard in x.addressable_shards
    if shard.device == device
  )
  return {
    'flops': sum(found.flops.values()),
    'sent': [[*part] for part in found.sent],
    'memory': found.memory.total,
    'arguments': found.memory.arguments,
    'held': held,
    'bubble': found.bubble,
    'parameters': found.parameters,
    'step': predict.predict(found, devices.KNOWN['h100'], 1.0).step,
  }


def candidates():
  """All for 8 devices: (sizes, why it is refused, seconds)."""
  h100 = devices.KNOWN['h100']
  request = plan_lib.Request(config(), {}, 8, h100, ROWS)
  found = search.candidates(request, search.model(request))
  return [
    [one.sizes, one.refused, 0 if one.refused else one.step] for one in found
  ]


def main():
  program.claim(16)
  told = {name: read(sizes) for name, sizes in MESHES.items()}
  counted, state = program.of_one_device(config(), ROWS)
  told['alone'] = {'flops': sum(counted.values()), 'state': state}
  told['candidates'] = candidates()
  print(json.dumps(told))


if __name__ == '__main__':
  main()
