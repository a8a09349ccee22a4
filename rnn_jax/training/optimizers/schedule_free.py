"""Schedule-free AdamW: averaging replaces a falling rate.

    y_t = (1 - b1) z_t + b1 x_t,  g_t the gradient at y_t
    v_t = b2 v_{t-1} + (1 - b2) g_t^2
    z_{t+1} = z_t - rate_t (g_t / (sqrt(v_t / (1 - b2^t)) + eps)
                            + weight_decay y_t)
    x_{t+1} = (1 - c_t) x_t + c_t z_{t+1},  c_t = r_t^2 / sum_{i <= t} r_i^2

r_t is the largest rate so far. The parameters of the train state are x, which
evaluations, checkpoints and generation read; z is in the optimizer's state.
Only gradients are taken at y (`point`).
Source: Defazio et al., "The Road Less Scheduled", 2024.
"""

import dataclasses
from collections.abc import Collection
from typing import Any
from typing import ClassVar

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import averaging
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base

PyTree = Any


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  gradients_elsewhere: ClassVar[bool] = True  # see `point`

  def check(self, config: config_lib.Config) -> None:
    """Checks the momentum, and that no schedule lowers the rate.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if config.schedule.falls:
      errors.refuse(
        'schedule.name',
        config.schedule.name,
        f'optimizer.name={self.name!r} averages instead of lowering the rate: '
        "give 'constant', with a warm-up",
      )
    if not self.b1:
      errors.refuse(
        'optimizer.b1',
        self.b1,
        f'optimizer.name={self.name!r} takes gradients between its average '
        'and its last point: give a number above 0',
      )


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  del stacked
  adam = optax.scale_by_rms(
    options.b2, options.eps, eps_in_sqrt=False, bias_correction=True
  )
  base = optax.chain(
    adam, optimizer.decayed(options), optimizer.scaled(options, rate)
  )
  # Optax counts steps from 1 where it computes weights.
  free = optax.contrib.schedule_free(
    base, lambda count: rate(count - 1), options.b1
  )

  def update(gradients, state, params):
    y = _between(options.b1, params, state)
    updates, state = free.update(gradients, state, y)
    y = optax.apply_updates(y, updates)
    new = optax.contrib.schedule_free_eval_params(state, y)
    return optax.tree.sub(new, params), state

  return optax.GradientTransformation(free.init, update)


def point(options: Config, params: PyTree, state: optax.OptState) -> PyTree:
  """Returns y, where gradients are taken; frozen parameters are unchanged.

  Args:
    options: section `optimizer` of the config.
    params: x.
    state: of the optimizer that `training.optimizer.make` returns.
  """
  free = averaging.find(state, optax.contrib.ScheduleFreeState)
  free = free._replace(z=averaging.completed(free.z, params))
  return _between(options.b1, params, free)


def _between(b1, params, state):
  return jax.tree.map(lambda x, z: (1.0 - b1) * z + b1 * x, params, state.z)
