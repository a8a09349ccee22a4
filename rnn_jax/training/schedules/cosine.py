"""Half a cosine from the peak to the final rate.

    rate_t = final + (peak - final) (1 + cos(pi t / steps)) / 2

Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm
Restarts", 2017.
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
  peak, options = config.optimizer.learning_rate, config.schedule
  rate = optax.cosine_decay_schedule(
    peak,
    max(config.train.steps - options.warmup_steps, 1),
    options.final_learning_rate / peak if peak else 0.0,
  )
  return schedule.Schedule(rate)
