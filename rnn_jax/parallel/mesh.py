"""The mesh of devices, and arrays on it."""

import jax
import numpy as np


def make():
  """One axis, 'data', over all devices of the job."""
  return jax.sharding.Mesh(np.array(jax.devices()), ('data',))


def put(tree, shardings):
  """Host arrays of this process to the mesh; `shardings` is a prefix tree."""
  shardings = jax.tree.broadcast(shardings, tree)
  return jax.tree.map(
    lambda x, sharding: jax.make_array_from_process_local_data(
      sharding, np.asarray(x)
    ),
    tree,
    shardings,
  )
