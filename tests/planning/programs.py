"""Plans of a tiny model on 16 virtual devices, printed as JSON.

test_program.py runs it in a process of its own.
"""

import json

import jax

from rnn_jax import config as config_lib
from rnn_jax.planning import devices
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import program
from rnn_jax.planning import search
from tests import tiny

ROWS = 32
MESHES = {
  'one': {},
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
  }


def searched():
  """All candidates for 16 devices, and the mesh that was compiled first."""
  request = plan_lib.Request(config(), {}, 16, devices.KNOWN['h100'], ROWS, 0.4)
  search.COMPILED = 1
  plans, found = search.find(request)
  best = plans[0]
  return {
    'best': best.program.sizes,
    'estimate': found[0].step,
    'predicted': best.prediction.step,
    'candidates': [[one.sizes, one.refused] for one in found],
  }


def main():
  program.claim(16)
  told = {name: read(sizes) for name, sizes in MESHES.items()}
  counted, state = program.of_one_device(config(), ROWS)
  told['alone'] = {'flops': sum(counted.values()), 'state': state}
  told['search'] = searched()
  print(json.dumps(told))


if __name__ == '__main__':
  main()
