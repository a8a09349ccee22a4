"""The peak, then a straight line to the final rate in the last steps.

    rate_t = peak                                    for t < steps - decay
    rate_t = peak + (final - peak) (t - steps + decay) / decay      from there

decay is `schedule.decay_steps`; 0 is a tenth of `train.steps`. Before the
decay, a run is the same as one with more steps.
Source: Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models
with Scalable Training Strategies", 2024 (warmup-stable-decay), with the line of
Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
Durations", 2024.
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

  # The last steps; 0: a tenth of all.
  decay_steps: int = config_lib.option(0, minimum=0)

  def check(self, config: config_lib.Config) -> None:
    """Checks that the decay fits in the steps after the warm-up.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    left = config.train.steps - self.warmup_steps
    # 0 steps: not known yet, see training/epochs.py.
    if config.train.steps and self.decay_steps > left:
      errors.refuse(
        'schedule.decay_steps',
        self.decay_steps,
        f'give at most train.steps - schedule.warmup_steps = {left}',
      )


def make(options: Config, peak: float, steps: int) -> schedule.Schedule:
  """Returns the Schedule after its warm-up."""
  left = steps - options.warmup_steps
  decay = min(options.decay_steps or max(steps // 10, 1), max(left, 1))
  rate = optax.linear_schedule(
    peak,
    options.final_learning_rate,
    decay,
    transition_begin=left - decay,
  )
  return schedule.Schedule(rate)
