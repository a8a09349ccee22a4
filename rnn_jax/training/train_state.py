"""The train state: what a training step takes and returns."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rnn_jax.parallel import hosts
from rnn_jax.parallel import placement
from rnn_jax.training import loss_scale as loss_scale_lib

PyTree = Any


class TrainState(flax.struct.PyTreeNode):
  """All that the next step depends on, except its batch.

  A checkpoint holds these fields by name, see `entries`. Fields that a caller
  doesn't need, such as the optimizer's state in an evaluation, may be None.

  Attributes:
    params: the parameters, a tree of float32 arrays.
    opt_state: the optimizer's state, optax's.
    carry: the recurrent state that is carried from batch to batch, of B rows;
      None where rows begin with zeros (data.carry_state=False).
    loss_scale: loss_scale.LossScale in float16, else None.
    step: int32 scalar, the number of steps taken.
    skipped: int32 scalar, the number of consecutive steps up to this one that
      were not finite; a step that only lowered the loss scale doesn't count.
    rate_scale: float32 scalar that the schedule's learning rate is multiplied
      by; evaluations may lower it (training/schedules/plateau.py).
    key: data of the PRNG key that each step folds its number into, uint32.
    error_feedback: where gradients are compressed, the part that each device
      hasn't sent yet (parallel/compression.py), else None.
  """

  params: PyTree
  opt_state: optax.OptState | None = None
  carry: PyTree | None = None
  loss_scale: loss_scale_lib.LossScale | None = None
  step: jax.Array | None = None
  skipped: jax.Array | None = None
  rate_scale: jax.Array | None = None
  key: jax.Array | None = None
  error_feedback: PyTree | None = None

  def entries(self) -> dict[str, PyTree]:
    """Returns the fields by name; `TrainState(**entries)` is the inverse."""
    return dict(vars(self))

  def shapes(self) -> dict[str, PyTree]:
    """Returns the fields as jax.ShapeDtypeStructs with shardings."""
    return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      self.entries(),
    )

  def step_key(self) -> jax.Array:
    """Returns the PRNG key of the next step."""
    assert self.key is not None and self.step is not None
    return jax.random.fold_in(jax.random.wrap_key_data(self.key), self.step)


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
  leaves = placement.to_device(leaves)  # they may be on the host
  return jnp.stack([jnp.isfinite(x).all() for x in leaves]).all()
