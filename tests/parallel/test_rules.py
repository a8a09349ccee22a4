"""Letters to axes of the mesh."""

import jax

from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import rules


def test_letters_become_axes():
  mesh = mesh_lib.make()
  spec = jax.sharding.PartitionSpec
  assert rules.sharding(mesh, 'RxBxL').spec == spec(None, 'data', None)
  assert rules.sharding(mesh, '').spec == spec()
  other = {'V': 'data'}
  assert rules.sharding(mesh, 'BxV', other).spec == spec(None, 'data')
