"""Triangles between the low rate and the peak.

    rate_t = low + (peak - low) (1 - |2 (t mod cycle) / cycle - 1|)

cycle is `schedule.cycle_steps`, up and down; 0 is a fifth of `train.steps`.
Source: Smith, "Cyclical Learning Rates for Training Neural Networks", 2017.
"""

import dataclasses

import jax.numpy as jnp

from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(base.Cycle):
  """Options of the schedule, section `schedule` of the config."""


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule, which has no warm-up."""
  low = options.low_learning_rate
  cycle = options.cycle_steps or max(steps // 5, 2)

  def rate(t):
    away = jnp.abs(2 * (t % cycle) / cycle - 1)
    return low + (peak - low) * (1 - away)

  return schedule.Schedule(rate)
