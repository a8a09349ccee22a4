"""The axes of a mesh, seen from inside and outside of its programs."""

import jax
import numpy as np
import pytest

from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib

SPEC = jax.sharding.PartitionSpec


@pytest.mark.parametrize('name', axes.NAMES)
def test_outside_of_a_program_each_axis_has_size_one(name):
  assert axes.size(name) == 1 and axes.index(name) == 0


def test_inside_of_a_program_they_are_those_of_the_mesh():
  mesh = mesh_lib.make()

  def run():
    sizes = [axes.size(name) for name in axes.NAMES]
    positions = [axes.index(name) for name in axes.NAMES]
    return np.array(sizes), jax.numpy.array(positions)

  run = jax.shard_map(
    run, mesh=mesh, in_specs=(), out_specs=SPEC(), check_vma=False
  )
  sizes, positions = jax.jit(run)()
  np.testing.assert_array_equal(sizes, [*mesh.shape.values()])
  np.testing.assert_array_equal(positions, 0)
