"""Arrays on a mesh."""

import jax
import numpy as np

from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import rules


def test_a_prefix_of_shardings_places_a_tree():
  mesh = mesh_lib.make()
  rows = rules.sharding(mesh, 'BxL')
  whole = rules.sharding(mesh, '')
  tree = {'batch': (np.ones((8, 3)), None), 'scalar': np.float32(2)}
  placed = mesh_lib.put(tree, {'batch': rows, 'scalar': whole})
  assert placed['batch'][0].sharding == rows
  assert placed['batch'][1] is None
  assert placed['scalar'].sharding == whole
  np.testing.assert_array_equal(placed['batch'][0], np.ones((8, 3)))


def test_it_works_where_implicit_transfers_are_refused():
  mesh = mesh_lib.make()
  with jax.transfer_guard('disallow'):
    mesh_lib.put(np.ones((8, 3)), rules.sharding(mesh, 'B'))
