"""The peak at every step."""

import dataclasses
from typing import ClassVar

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import schedule


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Schedule):
  """Options of the schedule, section `schedule` of the config."""

  falls: ClassVar[bool] = False


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule after its warm-up."""
  del options, steps
  return schedule.Schedule(optax.constant_schedule(peak))
