"""A straight line from the peak to the final rate.

rate_t = peak + (final - peak) t / steps
"""

import dataclasses

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(base.Falling):
  """Options of the schedule, section `schedule` of the config."""


def make(config: config_lib.Config) -> schedule.Schedule:
  """Returns the Schedule of a config, without its warm-up."""
  options = config.schedule
  rate = optax.linear_schedule(
    config.optimizer.learning_rate,
    options.final_learning_rate,
    max(config.train.steps - options.warmup_steps, 1),
  )
  return schedule.Schedule(rate)
