"""The gradient of a batch's mean loss, over slices of its rows and all devices.

    g = (sum over slices and devices of d objective / dp) / sum of weights

`MeanGradient` reads from the outside in: where the optimizer takes gradients,
the sum over devices, slices of the rows (train.accumulate), and the objective
of a slice, which is scaled in float16. Most runs need only the sum over
devices. Kronecker factors (models/dense.py) are gradients with respect to
parameters next to the kernels.
"""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.models import dense
from rnn_jax.parallel import compression
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import placement as placement_lib
from rnn_jax.parallel import rules
from rnn_jax.training import accumulation
from rnn_jax.training import loss_scale
from rnn_jax.training import optimizer as optimizer_lib
from rnn_jax.training import over_devices
from rnn_jax.training import step as step_lib
from rnn_jax.training import train_state

PyTree = Any
FACTORS = 'factors'  # K-FAC's name among sums and extra arguments
MIN_WEIGHT = 1e-8  # a batch of padding has a gradient of zeros
WHOLE = over_devices.WHOLE


class MeanGradient:
  """(state, batch) -> (Aux, gradients of the mean loss), see the module."""

  def __init__(
    self,
    loss_fn: step_lib.LossFn,
    optimizer: optimizer_lib.Optimizer,
    placement: placement_lib.Placement,
    state_axes: PyTree,
    train: config_lib.Train,
    mesh: config_lib.Mesh,
  ) -> None:
    """Prepares the loss of a run; nothing is traced before a call.

    Args:
      loss_fn: of whole parameters, see step.make_loss_fn.
      optimizer: that takes the gradients.
      placement: where the parameters are.
      state_axes: logical axes of the recurrent state, None if not carried.
      train: section of the config.
      mesh: section of the config.
    """
    self._optimizer, self._placement = optimizer, placement
    self._state_axes, self._mesh = state_axes, mesh
    self._slices = train.accumulate
    self._factors = factors = optimizer.factors
    logical_axes = dense.joined(
      placement.axes_outside_layers, jax.tree.map(lambda _: '_', factors)
    )
    self._loss_fn = over_devices.gather_parameters(
      loss_fn, logical_axes, placement.rules
    )
    self._frozen = dense.joined(
      optimizer.frozen, jax.tree.map(lambda _: False, factors)
    )
    self._scaled = loss_scale.is_needed(train)
    devices = over_devices.batch_parts(placement.mesh)
    self._parts = self._slices * devices  # that are differentiated
    self._run = placement.run(self._of_device, *self._specs())

  def __call__(
    self, state: train_state.TrainState, batch: batch_lib.Batch
  ) -> tuple[step_lib.Aux, PyTree]:
    params = state.params
    if self._optimizer.point:
      params = self._optimizer.point(params, state.opt_state)
    key = jax.random.key_data(state.step_key())
    bare = state.replace(params=None, opt_state=None)
    aux, grads = self._run(params, bare, batch, key)
    if self._factors:
      aux = _with_factors(aux, _factor(state, batch))
    return aux, grads

  def _of_device(self, params, state, batch, key):
    """Returns (Aux, gradients) of all rows, from a device's shards."""
    key = over_devices.key_of_device(jax.random.wrap_key_data(key))
    grad_fn = jax.value_and_grad(self._loss, has_aux=True, allow_int=True)
    joined = self._with_blank_factors(params)

    def of_rows(carry, batch, key):
      rows = state.replace(carry=carry)
      with dense.tagging() if self._factors else contextlib.nullcontext():
        (_, aux), grads = grad_fn(joined, rows, batch, key)
      grads = jax.tree.map(_zeros_of_whole, joined, grads)
      return self._parted(grads, aux, params, rows, batch), aux.changes['carry']

    (grads, sums), carry = accumulation.accumulate(
      of_rows,
      self._slices,
      state.carry,
      self._state_axes,
      batch,
      key,
    )
    return self._summed(grads, sums, {'carry': carry}, state)

  def _loss(self, params, state, batch, key):
    """Returns (objective, Aux) of a slice of a device's rows."""
    params = jax.tree.map(
      lambda frozen, x: jax.lax.stop_gradient(x) if frozen else x,
      self._frozen,
      params,
    )
    objective, aux = self._loss_fn(params, state, batch, key)
    if self._scaled:
      objective = _factor(state, batch, self._parts) * objective
    return objective, aux

  def _with_blank_factors(self, params):
    if not self._factors:
      return params
    return dense.joined(params, jax.tree.map(jnp.zeros_like, self._factors))

  def _parted(self, grads, aux, params, state, batch):
    """Returns (gradients of the parameters, sums) of a slice, unscaled."""
    sums = aux.sums
    if self._factors:
      sums = sums | {FACTORS: _factors_in(grads, self._factors)}
      grads = _like(params, grads)
    if self._scaled:
      factor = _factor(state, batch, self._parts)
      grads = jax.tree.map(lambda g: g / factor, grads)
    return grads, sums

  def _summed(self, grads, sums, changes, state):
    """Returns (Aux, gradients of the mean loss) of all devices."""
    compressed = self._mesh.compression
    rows = tuple(x for x in rules.ROWS if not compressed or x != 'data')
    sums = over_devices.total(sums)
    weight = sums.get('objective_weight', sums['weight'])
    weight = jnp.maximum(weight, MIN_WEIGHT)
    grads = fsdp.sum_gradients(
      grads, self._placement.logical_axes, self._placement.rules, rows
    )
    grads = jax.tree.map(lambda g: g / weight, grads)
    if compressed:
      feedback, grads = compression.all_reduce(
        state.error_feedback, grads, compressed, self._mesh.top_k_share
      )
      changes = changes | {'error_feedback': feedback}
    return step_lib.Aux(sums, changes), grads

  def _specs(self):
    """Returns the PartitionSpecs of `_of_device`: arguments and results."""
    specs = self._placement.specs
    changes = {'carry': self._placement.carry_specs(self._state_axes)}
    if self._mesh.compression:
      changes['error_feedback'] = specs('error_feedback')
    whole: dict[str, PyTree] = dict.fromkeys(
      ('loss_scale', 'step', 'skipped', 'rate_scale', 'key'), WHOLE
    )
    state = train_state.TrainState(None, **whole, **changes)
    aux: PyTree = step_lib.Aux(WHOLE, changes)  # type: ignore[arg-type]
    return (
      (specs('parameters'), state, over_devices.BATCH_SPEC, WHOLE),
      (aux, specs('gradients')),
    )


def _zeros_of_whole(x, gradient):
  """Returns the gradient; of whole numbers, zeros."""
  whole = jnp.issubdtype(x.dtype, jnp.integer)
  return jnp.zeros(x.shape, jnp.float32) if whole else gradient


def _factor(state, batch, parts=1):
  """Returns the scale of the objective of one of `parts` of a batch."""
  return loss_scale.factor(state.loss_scale, parts * batch.weights_BxL.size)


def _with_factors(aux, factor):
  """Turns summed factors into an argument of the optimizer's update."""
  sums = dict(aux.sums)
  factors = dense.averaged(sums.pop(FACTORS), sums['weight'], factor)
  return aux._replace(sums=sums, extra_args={FACTORS: factors})


def _factors_in(tree, factors):
  """Returns the Factors next to the kernels of a tree of joined parameters."""
  return {
    key: dense.Factors(tree['inputs'], tree['outputs'])
    if isinstance(inner, dense.Factors)
    else _factors_in(tree[key], inner)
    for key, inner in factors.items()
  }


def _like(params, tree):
  """Returns the leaves of a tree at the paths of the parameters."""

  def at(path, _):
    return functools.reduce(lambda tree, key: tree[key.key], path, tree)

  return jax.tree.map_with_path(at, params)
