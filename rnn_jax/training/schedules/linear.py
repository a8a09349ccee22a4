"""A straight line from the peak to the final rate.

rate_t = peak + (final - peak) t / steps
"""

import dataclasses

import optax

from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(base.Falling):
  """Options of the schedule, section `schedule` of the config."""


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule after its warm-up."""
  rate = optax.linear_schedule(
    peak,
    options.final_learning_rate,
    max(steps - options.warmup_steps, 1),
  )
  return schedule.Schedule(rate)
