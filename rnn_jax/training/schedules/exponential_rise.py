"""The rate rises from the low rate to the peak, by the same factor every step.

    rate_t = low (peak / low)^(t / (steps - 1))

It trains no model but shows which rates do: launch.train --find_rate
(experiments/rate_finder.py). Without a warm-up.
Source: Smith, "Cyclical Learning Rates for Training Neural Networks", 2017,
with a line in place of the exponential.
"""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Schedule):
  """Options of the schedule, section `schedule` of the config."""

  falls: ClassVar[bool] = False

  warmup_steps: int = config_lib.option(0, minimum=0)
  # At the first step.
  low_learning_rate: float = config_lib.option(1e-6, above=0)

  def check(self, config: config_lib.Config) -> None:
    """Checks that nothing else rises, and that the peak is above the low rate.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    base.check_no_warmup(self)
    if self.low_learning_rate >= (peak := config.optimizer.learning_rate):
      errors.refuse(
        'schedule.low_learning_rate',
        self.low_learning_rate,
        f'schedule.name={self.name!r} rises from it: give less than '
        f'optimizer.learning_rate={peak!r}',
      )


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule, which has no warm-up."""
  low = options.low_learning_rate
  # A ratio of float32's limits is beyond them, its logarithm isn't.
  begin, end = math.log(low), math.log(peak)
  last = max(steps - 1, 1)
  return schedule.Schedule(lambda t: jnp.exp(begin + (end - begin) * t / last))
