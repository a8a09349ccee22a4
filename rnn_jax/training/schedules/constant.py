"""The peak, all along."""

import optax

from rnn_jax.training import schedule


def make(config):
  """The Schedule of a Config, behind its warm-up."""
  peak = config.optimizer.learning_rate
  return schedule.Schedule(optax.constant_schedule(peak))
