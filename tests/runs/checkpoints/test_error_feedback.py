"""Error feedback saved by four devices and restored by other numbers."""

import tempfile

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.parallel import rules
from rnn_jax.runs.checkpoints import checkpoint
from tests.support import saved as support
from tests.support import virtual

SHAPES = {'table': (6, 4), 'layers': {'w': (2, 4, 3), 'b': (3,)}}
AXES = {'table': ('fsdp',), 'layers': {'w': (None, 'fsdp'), 'b': ()}}
SAVED = 4
MESHES = {'fewer': (2, 2), 'odd': (3, 1), 'more': (8, 1), 'sharded': (4, 2)}


def state(data, fsdp, draw):
  """A train state on a mesh; `draw` makes an array of a shape."""
  devices = np.reshape(jax.devices()[: data * fsdp], (data, fsdp))
  mesh = jax.sharding.Mesh(devices, ('data', 'fsdp'))

  def place(rows):
    def leaf(shape, axes):
      spec = jax.sharding.PartitionSpec(*rows[:1] and ('data',), *axes)
      return jax.device_put(draw((*rows, *shape)), rules.sharding(mesh, spec))

    return jax.tree.map(leaf, SHAPES, AXES, is_leaf=lambda x: type(x) is tuple)

  return {'params': place(()), 'error_feedback': place((data,))}


def restored():
  """Returns {mesh: ((saved, restored), whether shardings are as requested)}."""
  rng = np.random.default_rng(0)
  saved = state(SAVED, 1, lambda shape: np.float32(rng.normal(size=shape)))
  with tempfile.TemporaryDirectory() as folder:
    checkpoints = checkpoint.Checkpoints(folder, 1)
    support.save(checkpoints, 1, saved)
    results = {}
    for name, sizes in MESHES.items():
      like = state(*sizes, lambda shape: np.zeros(shape, np.float32))
      _, got, _ = support.restore(checkpoints, like)
      same = jax.tree.map(lambda x, y: x.sharding == y.sharding, got, like)
      results[name] = jax.device_get((saved, got)), jax.tree.all(same)
    like['error_feedback'] = None
    try:
      support.restore(checkpoints, like)
    except errors.InputError as error:
      results['without'] = str(error)
    checkpoints.close()
  return results


def leaves(name, *states):
  return zip(*(jax.tree.leaves(x[name]) for x in states), strict=True)


@pytest.fixture(scope='module')
def results():
  return virtual.call('tests.runs.checkpoints.test_error_feedback', 'restored')


@pytest.mark.parametrize('mesh', MESHES)
def test_other_devices_have_the_same_sum_left_to_send(results, mesh):
  (saved, got), placed = results[mesh]
  assert placed
  for x, y in zip(*map(jax.tree.leaves, (saved, got)), strict=True):
    assert x.dtype == y.dtype
  for before, after in leaves('error_feedback', saved, got):
    assert len(after) == MESHES[mesh][0]
    if len(after) == SAVED:
      np.testing.assert_array_equal(after, before)
      continue
    np.testing.assert_array_equal(after, np.broadcast_to(after[0], after.shape))
    # Sums of four float32 numbers of about 1: 2e-7 at most.
    sums = before.astype(np.float64).sum(0), after.astype(np.float64).sum(0)
    np.testing.assert_allclose(*sums, 0, 1e-6)
  for x, y in leaves('params', saved, got):
    np.testing.assert_array_equal(x, y)


def test_a_run_without_compression_refuses_it(results):
  assert 'error_feedback' in results['without']
