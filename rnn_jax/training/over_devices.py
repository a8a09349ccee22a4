"""Runs loss and gradient functions on all devices of a mesh.

Each device computes the gradient of its own rows, or of its own part of the
time axis. The functions here gather the parameters that it needs and sum its
results over all devices. On one device they only divide by the sum of weights.
"""

from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.parallel import axes
from rnn_jax.parallel import compression
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import placement as placement_lib
from rnn_jax.parallel import rules
from rnn_jax.training import step as step_lib
from rnn_jax.training import train_state

PyTree = Any
BATCH_SPEC = batch_lib.Batch(*map(rules.batch_spec, batch_lib.LOGICAL_AXES))
WHOLE = jax.sharding.PartitionSpec()
MIN_WEIGHT = 1e-8  # a batch of padding has a gradient of zeros


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


def sum_gradients(
  grad_fn: step_lib.GradFn,
  placement: placement_lib.Placement,
  carry_specs: PyTree,
  options: config_lib.Mesh,
) -> step_lib.GradFn:
  """Returns the gradient function of the whole batch's mean loss.

  Args:
    grad_fn: of the summed loss of a device's rows.
    placement: shardings of parameters and gradients.
    carry_specs: PartitionSpecs of the recurrent state, or None.
    options: section `mesh` of a config; with `compression`, gradients are
      summed over `data` in fewer bytes, with error feedback.
  """
  compressed = options.compression
  rows = tuple(x for x in rules.ROWS if not compressed or x != 'data')

  def of_device(params, state, batch, key):
    key = _key_of_device(jax.random.wrap_key_data(key))
    (_, aux), grads = grad_fn(params, state, batch, key)
    sums, changes = _sum(aux.sums), aux.changes
    weight = sums.get('objective_weight', sums['weight'])
    weight = jnp.maximum(weight, MIN_WEIGHT)
    grads = fsdp.sum_gradients(
      grads, placement.logical_axes, placement.rules, rows
    )
    grads = jax.tree.map(lambda g: g / weight, grads)
    if compressed:
      feedback, grads = compression.all_reduce(
        state.error_feedback, grads, compressed, fraction=options.top_k_share
      )
      changes = changes | {'error_feedback': feedback}
    return (sums['objective'], step_lib.Aux(sums, changes)), grads

  specs = placement.specs
  changes: dict[str, PyTree] = {'carry': carry_specs}
  if compressed:
    changes['error_feedback'] = specs('error_feedback')
  whole: dict[str, PyTree] = dict.fromkeys(
    ('loss_scale', 'step', 'skipped', 'rate_scale', 'key'), WHOLE
  )
  aux: PyTree = step_lib.Aux(WHOLE, changes)  # type: ignore[arg-type]
  run = placement.run(
    of_device,
    (
      specs('parameters'),
      train_state.TrainState(None, **whole, **changes),
      BATCH_SPEC,
      WHOLE,
    ),
    ((WHOLE, aux), specs('gradients')),
  )

  def of_all(params, state, batch, key):
    state = state.replace(params=None, opt_state=None)
    return run(params, state, batch, jax.random.key_data(key))

  return of_all


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
    return carry, _sum(sums)

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


def _key_of_device(key):
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


def _sum(sums):
  """Sums over the rows, time steps and pipeline stages of all devices."""
  summed = *rules.ROWS, 'sequence', 'pipe'
  names = tuple(name for name in summed if axes.size(name) > 1)
  return jax.lax.psum(sums, names) if names else sums
