"""A schedule: the peak, halved every so many steps."""

import dataclasses

from rnn_jax import config
from rnn_jax.training import schedule


@dataclasses.dataclass(frozen=True)
class Config(config.Schedule):
  """Options of the schedule."""

  half_life: int = config.option(100, least=1)  # steps


def make(config):
  """The Schedule of a Config, after its warm-up."""
  peak, half_life = config.optimizer.learning_rate, config.schedule.half_life
  return schedule.Schedule(lambda t: peak * 0.5 ** (t // half_life))
