"""The peak, and a straight line to the final rate in the last steps.

    rate_t = peak                                    for t < steps - decay
    rate_t = peak + (final - peak) (t - steps + decay) / decay      from there

decay is `schedule.decay_steps`, a tenth of `train.steps` for 0. All of a run
before that is a run with more steps as well.
Source: Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models
with Scalable Training Strategies", 2024 (warmup-stable-decay), with the line of
Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
Durations", 2024.
"""

import optax

from rnn_jax.training import schedule


def make(config):
  """The Schedule of a Config, behind its warm-up."""
  options, steps = config.schedule, config.train.steps
  left = steps - options.warmup_steps
  decay = min(options.decay_steps or max(steps // 10, 1), max(left, 1))
  rate = optax.linear_schedule(
    config.optimizer.learning_rate,
    options.final_learning_rate,
    decay,
    transition_begin=left - decay,
  )
  return schedule.Schedule(rate)
