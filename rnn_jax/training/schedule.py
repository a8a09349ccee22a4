"""The learning rate of a config: a linear warm-up, then `training/schedules`.

A schedule is a file with its options, `Config`, and

    make(options, peak, steps) -> Schedule

of section `schedule`, the highest rate and the run's steps. Its step 0 is the
first after the warm-up, `options.warmup_steps`, which fit in `steps`.
"""

import dataclasses
from collections.abc import Callable

import optax

from rnn_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Schedule:
  """A learning rate, and how evaluations change it.

  Attributes:
    rate: step -> learning rate, before it is scaled.
    rescale: (step, scale, evaluations since the best one) -> the scale of the
      rate from this step on; called after each evaluation. None: evaluations
      don't change the rate.
  """

  rate: optax.Schedule
  rescale: Callable[[int, float, int], float] | None = None


def make(config: config_lib.Config) -> Schedule:
  """Returns the Schedule of a config. Step 0 has a rate above 0."""
  options, peak = config.schedule, config.optimizer.learning_rate
  part = config_lib.load('training/schedules', options.name, 'schedule.name')
  schedule = part.make(options, peak, config.train.steps)
  warmup = options.warmup_steps
  if not warmup:
    return schedule
  rise = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
  rate = optax.join_schedules([rise, schedule.rate], [warmup])
  if schedule.rescale is None:
    return Schedule(rate)

  def rescale(step, scale, evaluations):
    if step <= warmup:
      return scale
    return schedule.rescale(step - warmup, scale, evaluations)

  return Schedule(rate, rescale)
