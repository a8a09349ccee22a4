"""A schedule: the peak, halved every so many steps."""

import dataclasses

from rnn_jax import config
from rnn_jax.training import schedule


@dataclasses.dataclass(frozen=True)
class Config(config.Schedule):
  """Options of the schedule."""

  half_life: int = config.option(100, minimum=1)  # steps


def make(options, peak, steps):
  """The Schedule after its warm-up."""
  del steps
  return schedule.Schedule(lambda t: peak * 0.5 ** (t // options.half_life))
