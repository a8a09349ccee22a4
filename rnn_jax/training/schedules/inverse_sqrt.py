"""The peak, divided by the square root of how often the warm-up has passed.

    rate_t = peak sqrt(w / (w + t)),  w = max(warm-up steps, 1)

It doesn't depend on the number of steps.
Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import jax.numpy as jnp

from rnn_jax.training import schedule


def make(config):
  """The Schedule of a Config, behind its warm-up."""
  peak = config.optimizer.learning_rate
  warmup = max(config.schedule.warmup_steps, 1)
  return schedule.Schedule(lambda t: peak * jnp.sqrt(warmup / (warmup + t)))
