"""Half a cosine from the peak to the final rate.

    rate_t = final + (peak - final) (1 + cos(pi t / steps)) / 2

Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm
Restarts", 2017.
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
  rate = optax.cosine_decay_schedule(
    peak,
    max(steps - options.warmup_steps, 1),
    options.final_learning_rate / peak if peak else 0.0,
  )
  return schedule.Schedule(rate)
