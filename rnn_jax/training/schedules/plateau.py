"""The peak, lowered when evaluations no longer improve.

Each time that `schedule.patience` evaluations in a row have brought no new best
(by `evaluate.criterion`), the rate is multiplied by `schedule.factor`, down to
the final rate. Evaluations of the warm-up count, but lower nothing.
"""

import optax

from rnn_jax.training import schedule


def make(config):
  """The Schedule of a Config, behind its warm-up."""
  peak, options = config.optimizer.learning_rate, config.schedule
  least = options.final_learning_rate / peak if peak else 0.0

  def rescale(step, scale, evaluations):
    del step
    if not evaluations or evaluations % options.patience:
      return scale
    return max(scale * options.factor, least)

  return schedule.Schedule(optax.constant_schedule(peak), rescale)
