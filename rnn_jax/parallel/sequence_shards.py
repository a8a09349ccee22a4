"""Communication between the devices that share the steps of a row.

All functions are for the inside of a `jax.shard_map`, and all but `from_last`
for more than one device along AXIS; device n has the n-th shard of L steps of
each row. See parallel/sequence.py.
Source: Hillis and Steele, "Data Parallel Algorithms", 1986.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax.parallel import axes

AXIS = 'sequence'

PyTree = Any


def prefix(
  decay_BxHxK: jax.Array, add_BxHxKxP: jax.Array, direction: int
) -> tuple[jax.Array, jax.Array]:
  """Returns the map of a state that the shards before this one make together.

  Each round doubles the number of shards that a device has composed.

  Args:
    decay_BxHxK: of this shard, which maps S to diag(decay) S + add.
    add_BxHxKxP: of this shard.
    direction: 1; -1 for the shards after this one, the last of them first.

  Returns:
    (decay_BxHxK, add_BxHxKxP).
  """
  size, here = axes.size(AXIS), axes.index(AXIS)
  position = here if direction == 1 else size - 1 - here
  decay, add = _shift_both(decay_BxHxK, add_BxHxKxP, 1, direction, 0)
  decay = jnp.where(position > 0, decay, 1.0)
  distance = 1
  while distance < size - 1:
    # The first device has no shard before it to report.
    decay_before, add_before = _shift_both(decay, add, distance, direction, 1)
    add = add + decay[..., None] * add_before
    decay = decay * jnp.where(position > distance, decay_before, 1.0)
    distance *= 2
  return decay, add


def _shift_both(decay, add, distance, direction, first):
  both = jnp.concatenate([add, decay[..., None]], -1)
  both = shift(both, distance, direction, first)
  return both[..., -1], both[..., :-1]


def shift(
  x: jax.Array, distance: int, direction: int = 1, first: int = 0
) -> jax.Array:
  """Returns x of the device `distance` before this one; zeros if none is.

  Args:
    x: of this device.
    distance: in devices.
    direction: 1, or -1 for the device `distance` after this one.
    first: the first device that sends, counted in that direction.
  """
  size = axes.size(AXIS)
  pairs = [(n, n + distance) for n in range(first, size - distance)]
  if direction == -1:
    pairs = [(size - 1 - a, size - 1 - b) for a, b in pairs]
  return lax.ppermute(x, AXIS, pairs)


def from_last(tree: PyTree) -> PyTree:
  """Returns the arrays of the last device, on all of them.

  A sum to which the others add zeros; its transpose adds up the gradients. With
  one device it is the tree itself.
  """
  if axes.size(AXIS) == 1:
    return tree
  last = axes.index(AXIS) == axes.size(AXIS) - 1
  return jax.tree.map(
    lambda x: lax.psum(jnp.where(last, x, jnp.zeros_like(x)), AXIS), tree
  )


def steps_before(row_BxM: jax.Array, x_BxL: jax.Array) -> jax.Array:
  """Returns the M steps before this shard, from other devices or the row.

  Args:
    row_BxM: the steps before the row; further axes may follow.
    x_BxL: the steps of this shard, with the same further axes.

  Returns:
    An array like `row_BxM`.
  """
  size, wanted, length = axes.size(AXIS), row_BxM.shape[1], x_BxL.shape[1]
  if not wanted:
    return row_BxM
  reached = min(size - 1, -(-wanted // length))
  parts = []
  for distance in range(reached, 0, -1):
    steps = min(length, wanted - (distance - 1) * length)
    parts.append(shift(x_BxL[:, length - steps :], distance))
  theirs = jnp.concatenate(parts, 1)
  rest = [(0, 0)] * (x_BxL.ndim - 2)
  theirs = jnp.pad(theirs, [(0, 0), (wanted - theirs.shape[1], 0), *rest])
  # Of the steps before the row, those that no device before this one has.
  row = jnp.pad(row_BxM, [(0, 0), (0, wanted), *rest])
  begin = jnp.minimum(axes.index(AXIS) * length, wanted)
  row = lax.dynamic_slice_in_dim(row, begin, wanted, 1)
  return row + theirs.astype(row.dtype)


def same_document(starts_BxL: jax.Array | None, steps: int) -> jax.Array:
  """Returns which of the M steps before this shard have no start after them.

  They are of the shard's first document, unless one begins with the shard's
  first step, which the op handles.

  Args:
    starts_BxL: nonzero where a document begins in this shard, or None.
    steps: M.

  Returns:
    Booleans, BxM or 1xM.
  """
  if starts_BxL is None:
    return jnp.ones((1, steps), bool)
  begins = (starts_BxL != 0).astype(jnp.int32)
  row = jnp.zeros((begins.shape[0], steps), jnp.int32)
  begins = steps_before(row, begins)
  later = jnp.pad(begins[:, 1:], [(0, 0), (0, 1)])[:, :steps]
  return lax.cumsum(later, 1, reverse=True) == 0


def counts(
  steps_B: jax.Array, length: int, starts_BxL: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
  """Returns the steps of a document, (before this shard, after the row).

  Args:
    steps_B: of the document so far, before the row.
    length: L, steps of this shard.
    starts_BxL: nonzero where a document begins in this shard, or None.
  """
  size, here = axes.size(AXIS), axes.index(AXIS)
  begin, end = here * length, size * length
  if starts_BxL is None:
    return steps_B + begin, steps_B + end
  at = begin + jnp.arange(length, dtype=jnp.int32)[None]
  last_B = jnp.max(jnp.where(starts_BxL != 0, at, -1), 1)
  last_NxB = lax.all_gather(last_B, AXIS)
  known = jnp.where(jnp.arange(size)[:, None] < here, last_NxB, -1)

  def steps_at(step, last_NxB):
    last_B = jnp.max(last_NxB, 0)
    return jnp.where(last_B < 0, steps_B + step, step - last_B)

  return steps_at(begin, known), steps_at(end, last_NxB)
