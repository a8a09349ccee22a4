"""Whether all numbers of a tree of arrays are finite."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.parallel import hosts
from rnn_jax.training import offload

PyTree = Any


def all_finite(tree: PyTree) -> bool:
  """Returns whether a tree of arrays has neither NaN nor infinity.

  All of several processes must ask together, and get the same answer.
  """
  leaves = [
    leaf
    for leaf in jax.tree.leaves(tree)
    if jnp.issubdtype(leaf.dtype, jnp.inexact)
  ]
  if jax.default_backend() != 'cpu':
    return bool(jax.device_get(_on_devices(leaves)))
  # NumPy reads a CPU's arrays in place; compiling takes longer than it saves.
  finite = all(
    np.isfinite(np.asarray(shard.data)).all()
    for leaf in leaves
    for shard in leaf.addressable_shards
    if shard.replica_id == 0
  )
  return all(map(bool, hosts.gather('finite' if finite else '')))


@jax.jit
def _on_devices(leaves):
  leaves = offload.to_device(leaves)  # they may be on the host
  return jnp.stack([jnp.isfinite(x).all() for x in leaves]).all()
