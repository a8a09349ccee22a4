"""One triangle from the low rate to the peak and back, then a falling line.

    rate_t = low + (peak - low) (1 - |2 t / cycle - 1|)               t <= cycle
    rate_t = low + (final - low) (t - cycle) / (steps - cycle)        from there

cycle is `schedule.cycle_steps`; 0 is nine tenths of `train.steps`. The source
lowers the momentum while the rate rises; here it is constant.
Source: Smith and Topin, "Super-Convergence: Very Fast Training of Neural
Networks Using Large Learning Rates", 2018.
"""

import dataclasses

import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(base.Cycle, base.Final):
  """Options of the schedule, section `schedule` of the config."""

  def check(self, config: config_lib.Config) -> None:
    """Checks the cycle, and that the final rate is the lowest.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    # 0: not known yet, see training/epochs.py.
    if 0 < config.train.steps < self.cycle_steps:
      errors.refuse(
        'schedule.cycle_steps',
        self.cycle_steps,
        f'give at most train.steps={config.train.steps}',
      )
    base.check_at_most(
      self,
      'final_learning_rate',
      'schedule.low_learning_rate',
      self.low_learning_rate,
    )


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule, which has no warm-up."""
  low, final = options.low_learning_rate, options.final_learning_rate
  cycle = options.cycle_steps or max(9 * steps // 10, 1)

  def rate(t):
    triangle = low + (peak - low) * (1 - jnp.abs(2 * t / cycle - 1))
    fraction = jnp.clip((t - cycle) / max(steps - cycle, 1), 0, 1)
    return jnp.where(t <= cycle, triangle, low + (final - low) * fraction)

  return schedule.Schedule(rate)
