"""Passes over a batch: sums and gradients, from each device's share.

A device gathers what it needs of the parameters, passes over its rows, or its
stretch of time, and what comes out is added up. Sums are weighted: a mean is
one division of what all have added.
"""

import contextlib

import jax
import jax.numpy as jnp

from rnn_jax.data import batch as batch_lib
from rnn_jax.models import dense
from rnn_jax.parallel import axes
from rnn_jax.parallel import compression
from rnn_jax.parallel import rules
from rnn_jax.parallel import shares
from rnn_jax.training import accumulation
from rnn_jax.training import loss_scale
from rnn_jax.training import optimizer

BATCH_SPEC = batch_lib.Batch(*map(rules.batch_spec, batch_lib.LETTERS))
WHOLE = jax.sharding.PartitionSpec()


class Passes:
  """Forward and backward passes of a task, to be jitted.

  Attributes:
    carry_specs: how carries are cut; None where states are not carried.
  """

  def __init__(self, task, config, placement, factors):
    """`factors` are shapes, optimizer.factors_of this config."""
    self._task = task
    self._placement = placement
    self._factors = factors
    self._accumulate = config.train.accumulate
    self._compression = config.mesh.compression
    self._top_k_share = config.mesh.top_k_share
    self._point = optimizer.point_of(config)
    self._frozen = optimizer.frozen(config, placement.shapes)
    self.carry_specs = self._letters = None
    if config.data.carry_state:
      self._letters = task.state_letters()
      self.carry_specs = placement.of_carry(self._letters)

  def sums(self, params, carry, batch):
    """Returns (carry, sums) of all devices."""
    run = self._placement.run(
      self._sums_of_share,
      (self._placement.specs('parameters'), self.carry_specs, BATCH_SPEC),
      (self.carry_specs, WHOLE),
    )
    return run(params, carry, batch)

  def gradients(self, state, batch, key):
    """Returns (residual, (gradients of the mean loss, factors), sums, carry).

    Args:
      state: a train state, see `training/step.py`.
      batch: data.batch.Batch.
      key: of this step.
    """
    specs = self._placement.specs
    kept = specs('residual') if self._compression else None
    run = self._placement.run(
      self._gradients_of_share,
      (
        kept,
        specs('parameters'),
        self.carry_specs,
        BATCH_SPEC,
        WHOLE,
        WHOLE,
      ),
      (kept, (specs('gradients'), WHOLE), WHOLE, self.carry_specs),
    )
    params = state['params']
    if self._point:
      params = self._point(params, state['optimizer'])
    return run(
      state.get('residual'),
      params,
      state['carry'],
      batch,
      jax.random.key_data(key),
      loss_scale.factor(state['loss_scale'], batch.weights_BxL.size),
    )

  def _sums_of_share(self, params, carry, batch):
    carry, sums = self._run(params, carry, batch, None, {})
    return carry, _add_up(sums)

  def _gradients_of_share(self, residual, params, carry, batch, key, factor):
    differentiate = jax.value_and_grad(self._loss, (0, 1), has_aux=True)
    blank = jax.tree.map(jnp.zeros_like, self._factors)

    def run(carry, batch, key):
      (_, (sums, carry)), found = differentiate(
        params, blank, carry, batch, key, factor
      )
      return (*found, sums), carry

    key = _own_key(jax.random.wrap_key_data(key))
    with dense.tagging() if blank else contextlib.nullcontext():
      (gradients, factors, sums), carry = accumulation.accumulate(
        run, self._accumulate, carry, self._letters, batch, key
      )
    sums, factors = _add_up((sums, factors))
    weight = factor * jnp.maximum(sums['weight'], 1e-8)
    where = self._placement
    rows = ('fsdp',) if self._compression else rules.ROWS
    gradients = shares.add_up(gradients, where.letters, where.rules, rows)
    gradients = jax.tree.map(lambda g: g / weight, gradients)
    if self._compression:
      residual, gradients = compression.all_reduce(
        residual, gradients, self._compression, share=self._top_k_share
      )
    factors = dense.averaged(factors, sums['weight'], factor)
    return residual, (gradients, factors), sums, carry

  def _loss(self, params, factors, carry, batch, key, factor):
    params = jax.tree.map(
      lambda held, x: jax.lax.stop_gradient(x) if held else x,
      self._frozen,
      params,
    )
    carry, sums = self._run(params, carry, batch, key, factors)
    return factor * sums['objective'], (jax.lax.stop_gradient(sums), carry)

  def _run(self, params, carry, batch, key, factors):
    where = self._placement
    params = shares.gather(params, where.letters_outside_layers, where.rules)
    params = dense.joined(params, factors)
    if self.carry_specs is not None:
      carry, sums = self._task.sums(params, carry, batch, key)
      return carry, _of_last_stage(sums)
    fresh = self._task.init_state(batch.weights_BxL.shape[0])
    _, sums = self._task.sums(params, fresh, batch, key)
    return carry, _of_last_stage(sums)


def _own_key(key):
  """A key for this device's rows."""
  for axis in rules.ROWS:
    if axes.size(axis) > 1:
      key = jax.random.fold_in(key, axes.index(axis))
  return key


def _of_last_stage(sums):
  """The sums where the last layer is, zeros elsewhere."""
  if (stages := axes.size('pipe')) == 1:
    return sums
  last = axes.index('pipe') == stages - 1
  return jax.tree.map(lambda x: jnp.where(last, x, jnp.zeros_like(x)), sums)


def _add_up(sums):
  """The sums over the rows, steps and stages of all devices."""
  summed = *rules.ROWS, 'sequence', 'pipe'
  names = tuple(name for name in summed if axes.size(name) > 1)
  return jax.lax.psum(sums, names) if names else sums
