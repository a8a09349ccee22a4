"""Runs a loss on all devices of a mesh.

Each device computes with its own rows, or its own part of the time axis. The
functions here gather the parameters that it needs and sum its results over all
devices.
"""

from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.parallel import axes
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import placement as placement_lib
from rnn_jax.parallel import rules
from rnn_jax.training import step as step_lib

PyTree = Any
BATCH_SPEC = batch_lib.Batch(*map(rules.batch_spec, batch_lib.LOGICAL_AXES))
WHOLE = jax.sharding.PartitionSpec()


def gather_parameters(
  loss_fn: step_lib.LossFn, logical_axes: PyTree, mesh_rules: rules.Rules
) -> step_lib.LossFn:
  """Returns the loss as a function of a device's parameter shards.

  Args:
    loss_fn: a loss of whole parameters.
    logical_axes: of the parameters that are gathered here, a tree like them.
    mesh_rules: which mesh axes shard them.
  """

  def gathered(params, state, batch, key):
    params = fsdp.gather(params, logical_axes, mesh_rules)
    _, aux = loss_fn(params, state, batch, key)
    sums = _of_last_stage(aux.sums)
    aux = aux._replace(sums=jax.lax.stop_gradient(sums))
    return sums['objective'], aux

  return gathered


def sum_evaluation(
  evaluate_step: step_lib.EvaluateStep,
  placement: placement_lib.Placement,
  carry_specs: PyTree,
) -> step_lib.EvaluateStep:
  """Returns the evaluation step of the whole batch.

  Args:
    evaluate_step: of a device's rows.
    placement: shardings of the parameters.
    carry_specs: PartitionSpecs of the recurrent state, or None.
  """

  def of_device(params, carry, batch):
    carry, sums = evaluate_step(params, carry, batch)
    return carry, total(sums)

  return placement.run(
    of_device,
    (placement.specs('parameters'), carry_specs, BATCH_SPEC),
    (carry_specs, WHOLE),
  )


def batch_parts(mesh: jax.sharding.Mesh) -> int:
  """Returns the number of shards of a batch's tokens."""
  parts = 1
  for axis in (*rules.ROWS, 'sequence'):
    parts *= mesh.shape[axis]
  return parts


def key_of_device(key: jax.Array) -> jax.Array:
  """Returns a key for this device's rows."""
  for axis in rules.ROWS:
    if axes.size(axis) > 1:
      key = jax.random.fold_in(key, axes.index(axis))
  return key


def _of_last_stage(sums):
  """Returns the sums on the last pipeline stage, zeros on the others."""
  if (stages := axes.size('pipe')) == 1:
    return sums
  last = axes.index('pipe') == stages - 1
  return jax.tree.map(lambda x: jnp.where(last, x, jnp.zeros_like(x)), sums)


def total(sums: step_lib.Sums) -> step_lib.Sums:
  """Returns sums over rows, time steps and pipeline stages of all devices."""
  summed = *rules.ROWS, 'sequence', 'pipe'
  names = tuple(name for name in summed if axes.size(name) > 1)
  return jax.lax.psum(sums, names) if names else sums
