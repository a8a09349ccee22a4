"""A straight line from the peak to the final rate.

rate_t = peak + (final - peak) t / steps
"""

import optax

from rnn_jax.training import schedule


def make(config):
  """The Schedule of a Config, behind its warm-up."""
  options = config.schedule
  rate = optax.linear_schedule(
    config.optimizer.learning_rate,
    options.final_learning_rate,
    max(config.train.steps - options.warmup_steps, 1),
  )
  return schedule.Schedule(rate)
