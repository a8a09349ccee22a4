"""The learning rate of a config: a linear warm-up, then `training/schedules`.

A schedule is a file with its options, `Config`, and

    make(config) -> Schedule

whose step 0 is the one after the warm-up.
"""

import dataclasses
import typing

import optax

from rnn_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Schedule:
  """A learning rate, and what evaluations make of it.

  Attributes:
    rate: step -> learning rate, before it is scaled.
    rescale: (step, scale, evaluations since the best one) -> scale, what the
      rate is multiplied with from there; called behind each evaluation. None:
      evaluations make nothing of it.
  """

  rate: optax.Schedule
  rescale: typing.Callable[[int, float, int], float] | None = None


def make(config):
  """The Schedule of a Config. Step 0 has a rate above 0."""
  options = config.schedule
  named = config_lib.load('training/schedules', options.name, 'schedule.name')
  schedule, warmup = named.make(config), options.warmup_steps
  if not warmup:
    return schedule
  peak = config.optimizer.learning_rate
  rise = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
  rate = optax.join_schedules([rise, schedule.rate], [warmup])
  if schedule.rescale is None:
    return Schedule(rate)

  def rescale(step, scale, evaluations):
    if step <= warmup:
      return scale
    return schedule.rescale(step - warmup, scale, evaluations)

  return Schedule(rate, rescale)
