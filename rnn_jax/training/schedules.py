"""Learning rate by step."""

import optax


def warmup_cosine(config):
  """Linear from 0 to the peak, then half a cosine to the final rate.

  Source: Loshchilov and Hutter, "SGDR", 2017. Step 0 has a rate above 0.
  """
  peak, warmup = config.optimizer.learning_rate, config.schedule.warmup_steps
  steps = config.train.steps
  cosine = optax.cosine_decay_schedule(
    peak,
    max(steps - warmup, 1),
    config.schedule.final_learning_rate / peak if peak else 0.0,
  )
  if not warmup:
    return cosine
  rise = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
  return optax.join_schedules([rise, cosine], [warmup])
