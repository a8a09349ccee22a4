"""The learning rate of a config: a linear warm-up, then `training/schedules`.

A schedule is a file with its options, `Config`, and

    make(config) -> Schedule

whose step 0 is the first after the warm-up. The config that it gets is
resolved: its `schedule.warmup_steps` fit in its `train.steps`.
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


def resolve(config: config_lib.Config) -> config_lib.Config:
  """Returns a config with a warm-up that fits in its steps.

  One that is longer than `train.steps`, as in a short trial of a config that is
  meant for many, takes half of the steps instead.
  """
  options, steps = config.schedule, config.train.steps
  if options.warmup_steps <= steps:
    return config
  options = dataclasses.replace(options, warmup_steps=steps // 2)
  return dataclasses.replace(config, schedule=options)


def describe_warmup(config: config_lib.Config) -> str:
  """Returns a line about a warm-up that `resolve` shortens, or ''."""
  given, steps = config.schedule.warmup_steps, config.train.steps
  if given <= steps:
    return ''
  return (
    f'schedule.warmup_steps={given} is more than train.steps={steps}: the '
    f'warm-up takes {resolve(config).schedule.warmup_steps} steps'
  )


def make(config: config_lib.Config) -> Schedule:
  """Returns the Schedule of a config. Step 0 has a rate above 0."""
  config = resolve(config)
  options = config.schedule
  part = config_lib.load('training/schedules', options.name, 'schedule.name')
  schedule, warmup = part.make(config), options.warmup_steps
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
