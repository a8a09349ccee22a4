"""The peak, divided by the square root of time in warm-ups.

    rate_t = peak sqrt(w / (w + t)),  w = max(warm-up steps, 1)

It doesn't depend on the number of steps.
Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import dataclasses

import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.training import schedule


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Schedule):
  """Options of the schedule, section `schedule` of the config."""


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule after its warm-up."""
  del steps
  warmup = max(options.warmup_steps, 1)
  return schedule.Schedule(lambda t: peak * jnp.sqrt(warmup / (warmup + t)))
