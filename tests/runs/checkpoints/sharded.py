"""A state on eight devices, saved and restored: what virtual.call runs."""

import tempfile

import jax

from rnn_jax.runs.checkpoints import checkpoint
from tests.support import saved


def save():
  """Saves a sharded state and restores it sharded. Returns the folder."""
  mesh = jax.make_mesh((8,), ('B',))
  spec = jax.sharding.PartitionSpec

  def spread(x):
    rows = spec('B') if x.ndim and x.shape[0] % 8 == 0 else spec()
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, rows))

  state = jax.tree.map(spread, saved.make_state(1))
  assert len(state['params']['w'].sharding.device_set) == 8
  folder = tempfile.mkdtemp()
  writer = checkpoint.Checkpoints(folder, 1)
  with jax.transfer_guard('disallow'):
    saved.save(writer, 1, state)
    _, got, _ = saved.restore(writer, saved.like(state))
    _, read = saved.read(writer, {'params': state['params']})
  saved.assert_same(got, state)
  saved.assert_same(read['params'], state['params'])
  writer.close()
  return folder
