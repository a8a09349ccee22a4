"""Expert parallelism: devices with their own rows share the experts of a layer.

    y_own = to_rows(sum over own experts of gate expert(from_rows(x_own)))

`from_rows` gathers the rows of all n devices along the axis, each device runs
its E/n experts on those that are routed to them, and `to_rows` sums what all
computed and leaves each device its own rows. No row is dropped, whatever a
router chooses, and shapes don't depend on it: (n - 1)/n of the rows travel each
way, where an exchange of only the routed ones (Lepikhin et al., "GShard:
Scaling Giant Models with Conditional Computation and Automatic Sharding", 2020)
needs a capacity, and drops what is above it. One function is the transpose of
the other, so the backward pass sends as much.
"""

import jax

AXIS = 'expert'


def from_rows(x: jax.Array) -> jax.Array:
  """Returns the x of all devices along AXIS, joined on the first axis."""
  return jax.lax.all_gather(x, AXIS, axis=0, tiled=True)


def to_rows(x: jax.Array) -> jax.Array:
  """Returns the sum of all devices' x, this device's part of the first axis."""
  return jax.lax.psum_scatter(x, AXIS, scatter_dimension=0, tiled=True)
