"""Wraps a run's loss and gradient function as its config says.

A gradient function (step.GradFn) takes (params, state, batch, key) and returns
((objective, Aux), gradients). In `wrap`, from the inside out:

    of a device's rows    Kronecker factors; dividing by the loss scale;
                          accumulation over slices of the rows
    of the whole batch    the sum over devices (training/over_devices.py);
                          averaging the factors; the point of the gradients

Most runs need only the sum over devices.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.models import adapters
from rnn_jax.models import dense
from rnn_jax.parallel import placement as placement_lib
from rnn_jax.training import accumulation
from rnn_jax.training import loss_scale
from rnn_jax.training import optimizer
from rnn_jax.training import over_devices
from rnn_jax.training import step as step_lib

PyTree = Any
FACTORS = 'factors'  # K-FAC's name among sums and extra arguments
ADAPTERS = 2**31 - 1  # folded into a step's key for their dropout


def prepare_loss(
  loss_fn: step_lib.LossFn,
  config: config_lib.Config,
  placement: placement_lib.Placement,
  factors: PyTree,
) -> step_lib.LossFn:
  """Returns the loss that a run differentiates.

  Args:
    loss_fn: of whole parameters, see step.make_loss_fn.
    config: of the run.
    placement: where its parameters are.
    factors: shapes, see optimizer.factor_shapes.
  """
  logical_axes = placement.axes_outside_layers
  logical_axes = dense.joined(
    logical_axes, jax.tree.map(lambda _: '_', factors)
  )
  loss_fn = over_devices.gather_parameters(
    loss_fn, logical_axes, placement.rules
  )
  if optimizer.freezes(config):
    loss_fn = _stop_at_frozen(loss_fn, config)
  if loss_scale.is_needed(config.train):
    loss_fn = _scale_loss(loss_fn, _parts(config, placement))
  return loss_fn


def wrap(
  grad_fn: step_lib.GradFn,
  config: config_lib.Config,
  placement: placement_lib.Placement,
  state_axes: PyTree,
  factors: PyTree,
) -> step_lib.GradFn:
  """Returns the gradient function of a run's whole batch, see the module.

  Args:
    grad_fn: of what `prepare_loss` returns.
    config: of the run.
    placement: where its parameters are.
    state_axes: logical axes of the recurrent state, None if not carried.
    factors: shapes, see optimizer.factor_shapes.
  """
  if factors:
    grad_fn = _sum_factors(grad_fn, factors)
  if loss_scale.is_needed(config.train):
    grad_fn = _unscale(grad_fn, _parts(config, placement))
  if config.train.accumulate > 1:
    grad_fn = accumulate(grad_fn, config.train.accumulate, state_axes)
  carry_specs = placement.carry_specs(state_axes)
  grad_fn = over_devices.sum_gradients(
    grad_fn, placement, carry_specs, config.mesh
  )
  if factors:
    grad_fn = _average_factors(grad_fn)
  if point := optimizer.gradient_point(config):
    grad_fn = _take_at(grad_fn, point)
  return grad_fn


def accumulate(
  grad_fn: step_lib.GradFn, parts: int, state_axes: PyTree
) -> step_lib.GradFn:
  """Returns a gradient function that accumulates over slices of the rows.

  Args:
    grad_fn: of a summed loss.
    parts: the number of slices; it divides the rows.
    state_axes: logical axes of the recurrent state, None if not carried.
  """

  def accumulated(params, state, batch, key):
    def run(carry, batch, key):
      part = state.replace(carry=carry)
      (_, aux), grads = grad_fn(params, part, batch, key)
      return (grads, aux.sums), aux.changes['carry']

    (grads, sums), carry = accumulation.accumulate(
      run, parts, state.carry, state_axes, batch, key
    )
    aux = step_lib.Aux(sums, {'carry': carry})
    return (sums['objective'], aux), grads

  return accumulated


def adjust_loss_scale(
  train_step: step_lib.TrainStep, steps: int
) -> step_lib.TrainStep:
  """Returns a training step that lowers and raises its loss scale.

  Args:
    train_step: its state has a LossScale.
    steps: consecutive finite steps before the scale doubles.
  """

  def adjusted(state, batch):
    new, metrics = train_step(state, batch)
    scale, lowered = loss_scale.update(
      state.loss_scale, metrics['finite'], steps
    )
    skipped = jnp.where(lowered, state.skipped, new.skipped)
    metrics |= {'skipped': skipped, **loss_scale.metrics(state.loss_scale)}
    return new.replace(loss_scale=scale, skipped=skipped), metrics

  return adjusted


def merge_adapters(
  loss_fn: step_lib.LossFn, options: adapters.Options, unchanged: bool = False
) -> step_lib.LossFn:
  """Returns the loss of a model's parameters and their low-rank changes.

  Args:
    loss_fn: of the parameters W'.
    options: section `adapters` of the config.
    unchanged: whether the loss also reads the model that is changed, as
      `adapters.UNCHANGED` among the parameters.
  """

  def merged(params, state, batch, key):
    model, changes = adapters.split(params)
    own = None if key is None else jax.random.fold_in(key, ADAPTERS)
    params, summing = adapters.by_layer(model, changes, options, own)
    if unchanged:
      fixed, _ = adapters.by_layer(model, {}, options)
      params = {**params, adapters.UNCHANGED: fixed}
    with summing:
      return loss_fn(params, state, batch, key)

  return merged


def _stop_at_frozen(loss_fn, config):
  """Makes the gradient of frozen parameters zero, at no cost."""

  def stopped(params, state, batch, key):
    params = jax.tree.map(
      lambda frozen, x: jax.lax.stop_gradient(x) if frozen else x,
      optimizer.frozen_mask(config, params),
      params,
    )
    return loss_fn(params, state, batch, key)

  return stopped


def _parts(config, placement):
  """Returns the number of equal parts that a batch is differentiated in."""
  devices = over_devices.batch_parts(placement.mesh)
  return config.train.accumulate * devices


def _factor(state, batch, parts=1):
  """Returns the scale of the objective of one of `parts` of a batch."""
  return loss_scale.factor(state.loss_scale, parts * batch.weights_BxL.size)


def _scale_loss(loss_fn, parts):
  def scaled(params, state, batch, key):
    objective, aux = loss_fn(params, state, batch, key)
    return _factor(state, batch, parts) * objective, aux

  return scaled


def _unscale(grad_fn, parts):
  """Undoes `_scale_loss` in the gradients."""

  def unscaled(params, state, batch, key):
    values, grads = grad_fn(params, state, batch, key)
    factor = _factor(state, batch, parts)
    return values, jax.tree.map(lambda g: g / factor, grads)

  return unscaled


def _take_at(grad_fn, point):
  """Takes gradients at another point than the parameters."""

  def taken(params, state, batch, key):
    return grad_fn(point(params, state.opt_state), state, batch, key)

  return taken


def _sum_factors(grad_fn, factors):
  """Adds the Kronecker factors of a batch to its sums, see models/dense.py.

  They are gradients with respect to parameters next to the kernels.
  """

  def summed(params, state, batch, key):
    blank = jax.tree.map(jnp.zeros_like, factors)
    with dense.tagging():
      (objective, aux), grads = grad_fn(
        dense.joined(params, blank), state, batch, key
      )
    sums = aux.sums | {FACTORS: _factors_in(grads, factors)}
    return (objective, aux._replace(sums=sums)), _like(params, grads)

  return summed


def _average_factors(grad_fn):
  """Turns summed factors into an argument of the optimizer's update."""

  def averaged(params, state, batch, key):
    (objective, aux), grads = grad_fn(params, state, batch, key)
    sums = dict(aux.sums)
    factors = dense.averaged(
      sums.pop(FACTORS), sums['weight'], _factor(state, batch)
    )
    aux = aux._replace(sums=sums, extra_args={FACTORS: factors})
    return (objective, aux), grads

  return averaged


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
