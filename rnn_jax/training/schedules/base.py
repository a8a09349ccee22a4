"""Options that several schedules share."""

import dataclasses

from rnn_jax import config as config_lib
from rnn_jax import errors


@dataclasses.dataclass(frozen=True)
class Final(config_lib.Schedule):
  """Options of schedules with a final rate."""

  # At the last step.
  final_learning_rate: float = config_lib.option(1e-4, minimum=0)


@dataclasses.dataclass(frozen=True)
class Falling(Final):
  """Options of schedules whose final rate is at most the peak."""

  def check(self, config: config_lib.Config) -> None:
    """Checks that the final rate is at most the peak.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    peak = config.optimizer.learning_rate
    check_at_most(self, 'final_learning_rate', 'optimizer.learning_rate', peak)


@dataclasses.dataclass(frozen=True)
class Cycle(config_lib.Schedule):
  """Options of schedules that include a rise."""

  warmup_steps: int = config_lib.option(0, minimum=0)
  # Up and down; 0: the schedule's default.
  cycle_steps: int = config_lib.option(0, minimum=0)
  # At the start of cycles.
  low_learning_rate: float = config_lib.option(1e-4, minimum=0)

  def check(self, config: config_lib.Config) -> None:
    """Checks the rates and the length of a cycle.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    check_no_warmup(self)
    if self.cycle_steps == 1:
      errors.refuse(
        'schedule.cycle_steps', 1, 'give 2 or more, up and down; or 0'
      )
    if not self.low_learning_rate:
      errors.refuse(
        'schedule.low_learning_rate',
        self.low_learning_rate,
        f'schedule.name={self.name!r} starts from it: give a number above 0',
      )
    peak = config.optimizer.learning_rate
    check_at_most(self, 'low_learning_rate', 'optimizer.learning_rate', peak)


def check_no_warmup(options: config_lib.Schedule) -> None:
  """Checks that a schedule that rises by itself has no warm-up.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  if options.warmup_steps:
    errors.refuse(
      'schedule.warmup_steps',
      options.warmup_steps,
      f'schedule.name={options.name!r} already rises: give 0',
    )


def check_at_most(
  options: config_lib.Schedule, name: str, key: str, most: float
) -> None:
  """Checks that one rate of a schedule is not above another.

  Raises:
    InputError: names both.
  """
  if (value := getattr(options, name)) > most:
    errors.refuse(
      f'schedule.{name}',
      value,
      f'schedule.name={options.name!r} lowers the rate: give at most '
      f'{key}={most!r}',
    )
