"""Error feedback of compressed gradients, for another number of devices.

The entry `error_feedback` of a train state has a row for each device along
`data` (parallel/compression.py). A checkpoint keeps all rows. A run with
another `mesh.data` restores them as they were saved, sharded over `data` if
its size divides them, and gives each of its own devices an equal part of their
sum, so that what is still to be sent stays the same.
"""

from typing import Any

import jax

from rnn_jax.parallel import compression
from rnn_jax.parallel import rules

NAME = 'error_feedback'
PyTree = Any


def as_saved(stored: PyTree, like: PyTree) -> PyTree:
  """Returns `like` with as many rows of error feedback as are saved.

  Args:
    stored: the saved tree, with shapes as leaves.
    like: a train state, or its shapes with shardings.
  """
  if not _differ(stored, like):
    return like
  return like | {
    NAME: jax.tree.map(_rows_of, stored[NAME], like[NAME]),
  }


def resize(state: PyTree, like: PyTree) -> PyTree:
  """Returns a restored train state with as many rows as `like` has."""
  if not _differ(state, like):
    return state
  size = _size(like)
  shardings = jax.tree.map(lambda x: x.sharding, like[NAME])
  run = jax.jit(
    lambda rows: compression.resize(rows, size), out_shardings=shardings
  )
  return state | {NAME: run(state[NAME])}


def _differ(a, b):
  if not all(isinstance(tree, dict) and tree.get(NAME) for tree in (a, b)):
    return False
  same = jax.tree.structure(a[NAME]) == jax.tree.structure(b[NAME])
  return same and _size(a) != _size(b)


def _size(tree):
  return jax.tree.leaves(tree[NAME])[0].shape[0]


def _rows_of(stored, leaf):
  """Returns the shape of `leaf` with the rows of `stored`, and a sharding."""
  sharding, rows = leaf.sharding, stored.shape[0]
  if rows % sharding.mesh.shape['data']:
    whole = jax.sharding.PartitionSpec(None, *sharding.spec[1:])
    sharding = rules.sharding(sharding.mesh, whole)
  return jax.ShapeDtypeStruct(
    (rows, *leaf.shape[1:]), leaf.dtype, sharding=sharding
  )
