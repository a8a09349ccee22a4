"""The peak, lowered when evaluations no longer improve; it may rise again.

After each `schedule.patience` evaluations in a row without a new best (by
`evaluate.criterion`), the rate is multiplied by `schedule.factor`, down to the
final rate. After each evaluation with a new best, it is multiplied by
`schedule.rise`, up to the peak; 1 never raises it. Evaluations during the
warm-up count, but change nothing.
"""

import dataclasses
from typing import ClassVar

import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import schedule
from rnn_jax.training.schedules import base


@dataclasses.dataclass(frozen=True)
class Config(base.Falling):
  """Options of the schedule, section `schedule` of the config."""

  # What the rate is multiplied by.
  factor: float = config_lib.option(0.5, below=1)
  # What it is multiplied by after a new best, up to the peak.
  rise: float = config_lib.option(1.0, minimum=1)
  # Evaluations without a new best before it falls.
  patience: int = config_lib.option(5, minimum=1)

  rescales: ClassVar[bool] = True

  def check(self, config: config_lib.Config) -> None:
    """Checks that the run has evaluations.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    evaluate = config.evaluate
    if not evaluate.every:
      errors.refuse(
        'evaluate.every', 0, f'schedule.name={self.name!r} needs evaluations'
      )
    if 0 < evaluate.patience <= self.patience:
      errors.refuse(
        'evaluate.patience',
        evaluate.patience,
        'the run would stop before the rate is lowered: give more than '
        f'schedule.patience={self.patience}, or 0',
      )


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule after its warm-up."""
  del steps
  lowest = options.final_learning_rate / peak if peak else 0.0

  def rescale(step, scale, evaluations):
    del step
    if not evaluations:
      return min(scale * options.rise, 1.0)
    if evaluations % options.patience:
      return scale
    return max(scale * options.factor, lowest)

  return schedule.Schedule(optax.constant_schedule(peak), rescale)
