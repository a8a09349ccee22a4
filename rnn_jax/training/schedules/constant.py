"""The peak at every step."""

import dataclasses
from typing import ClassVar

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import schedule


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Schedule):
  """Options of the schedule, section `schedule` of the config."""

  constant: ClassVar[bool] = True


def make(config: config_lib.Config) -> schedule.Schedule:
  """Returns the Schedule of a config, without its warm-up."""
  peak = config.optimizer.learning_rate
  return schedule.Schedule(optax.constant_schedule(peak))
