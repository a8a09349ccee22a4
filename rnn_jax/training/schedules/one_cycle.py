"""One triangle from the low rate to the peak and back, and a line below it.

    rate_t = low + (peak - low) (1 - |2 t / cycle - 1|)               t <= cycle
    rate_t = low + (final - low) (t - cycle) / (steps - cycle)        from there

cycle is `schedule.cycle_steps`; for 0 nine tenths of `train.steps`. The source
lets the momentum fall while the rate rises; here it stays.
Source: Smith and Topin, "Super-Convergence: Very Fast Training of Neural
Networks Using Large Learning Rates", 2018.
"""

import jax.numpy as jnp

from rnn_jax.training import schedule


def make(config):
  """The Schedule of a Config, which has no warm-up."""
  peak, options = config.optimizer.learning_rate, config.schedule
  low, final = options.low_learning_rate, options.final_learning_rate
  steps = config.train.steps
  cycle = options.cycle_steps or max(9 * steps // 10, 1)

  def rate(t):
    triangle = low + (peak - low) * (1 - jnp.abs(2 * t / cycle - 1))
    share = jnp.clip((t - cycle) / max(steps - cycle, 1), 0, 1)
    return jnp.where(t <= cycle, triangle, low + (final - low) * share)

  return schedule.Schedule(rate)
