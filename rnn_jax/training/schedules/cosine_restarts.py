"""Half a cosine from the peak to the final rate, again in every cycle.

    rate_t = final + (peak - final) (1 + cos(pi (t mod cycle) / cycle)) / 2

Every cycle starts at the peak again, a restart. cycle is
`schedule.cycle_steps`; 0 is a fifth of `train.steps`.
Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm
Restarts", 2017, with cycles of one length.
"""

import dataclasses

import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(base.Falling):
  """Options of the schedule, section `schedule` of the config."""

  # From peak to peak; 0: a fifth of train.steps.
  cycle_steps: int = config_lib.option(0, minimum=0)

  def check(self, config: config_lib.Config) -> None:
    """Checks the final rate and the length of a cycle.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    if self.cycle_steps == 1:
      errors.refuse(
        'schedule.cycle_steps',
        1,
        'each step would be a restart: give 2 or more, or 0',
      )


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule after its warm-up."""
  cycle = options.cycle_steps or max(steps // 5, 2)
  fall = optax.cosine_decay_schedule(
    peak, cycle, options.final_learning_rate / peak if peak else 0.0
  )
  return schedule.Schedule(lambda t: fall(t % cycle))
