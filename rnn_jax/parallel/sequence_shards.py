"""What devices tell each other of their stretches of a row.

For the inside of a `jax.shard_map` with more than one device along AXIS; device
n holds the n-th stretch of L steps of each row. See `parallel/sequence.py`.
Source: Hillis and Steele, "Data Parallel Algorithms", 1986.
"""

import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax.parallel import axes

AXIS = 'sequence'


def composed(decay_BxHxK, add_BxHxKxP, way):
  """What the stretches before this one make of a state: (decay, add).

  `way` is 1, or -1 where those behind it come first. A round doubles the
  stretches that a device knows of.
  """
  size, here = axes.size(AXIS), axes.index(AXIS)
  place = here if way == 1 else size - 1 - here
  decay, add = _moved_both(decay_BxHxK, add_BxHxKxP, 1, way, 0)
  decay = jnp.where(place > 0, decay, 1.0)
  distance = 1
  while distance < size - 1:
    # The first has no stretch before it to tell of.
    earlier, more = _moved_both(decay, add, distance, way, 1)
    add = add + decay[..., None] * more
    decay = decay * jnp.where(place > distance, earlier, 1.0)
    distance *= 2
  return decay, add


def _moved_both(decay, add, distance, way, first):
  both = jnp.concatenate([add, decay[..., None]], -1)
  both = moved(both, distance, way, first)
  return both[..., -1], both[..., :-1]


def moved(x, distance, way=1, first=0):
  """What the device `distance` before this one has; zeros if there is none.

  `first` is the first device in that order that sends.
  """
  size = axes.size(AXIS)
  pairs = [(n, n + distance) for n in range(first, size - distance)]
  if way == -1:
    pairs = [(size - 1 - a, size - 1 - b) for a, b in pairs]
  return lax.ppermute(x, AXIS, pairs)


def of_last(tree):
  """What the last device has, on all of them.

  A sum to which the others add zeros; transposed, it adds up the gradients.
  """
  last = axes.index(AXIS) == axes.size(AXIS) - 1
  return jax.tree.map(
    lambda x: lax.psum(jnp.where(last, x, jnp.zeros_like(x)), AXIS), tree
  )


def before(row_BxM, x_BxL):
  """The M steps before this stretch, of others and those before the row.

  `row_BxM` are those before the row, x those of this stretch; further axes are
  the same. Returns them in the former's dtype.
  """
  size, wanted, length = axes.size(AXIS), row_BxM.shape[1], x_BxL.shape[1]
  if not wanted:
    return row_BxM
  reached = min(size - 1, -(-wanted // length))
  parts = []
  for distance in range(reached, 0, -1):
    steps = min(length, wanted - (distance - 1) * length)
    parts.append(moved(x_BxL[:, length - steps :], distance))
  theirs = jnp.concatenate(parts, 1)
  rest = [(0, 0)] * (x_BxL.ndim - 2)
  theirs = jnp.pad(theirs, [(0, 0), (wanted - theirs.shape[1], 0), *rest])
  # Of those before the row, as many as no device before this one has.
  row = jnp.pad(row_BxM, [(0, 0), (0, wanted), *rest])
  begin = jnp.minimum(axes.index(AXIS) * length, wanted)
  row = lax.dynamic_slice_in_dim(row, begin, wanted, 1)
  return row + theirs.astype(row.dtype)


def same_document(starts_BxL, steps):
  """BxM: which of the M steps before this stretch no document ends behind.

  That the stretch itself may begin with one is for the op to see.
  """
  if starts_BxL is None:
    return jnp.ones((1, steps), bool)
  begins = (starts_BxL != 0).astype(jnp.int32)
  row = jnp.zeros((begins.shape[0], steps), jnp.int32)
  begins = before(row, begins)
  later = jnp.pad(begins[:, 1:], [(0, 0), (0, 1)])[:, :steps]
  return lax.cumsum(later, 1, reverse=True) == 0


def counts(steps_B, length, starts_BxL):
  """A document's steps so far, (before this stretch, behind the row)."""
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
