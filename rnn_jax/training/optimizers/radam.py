"""RAdam: Adam that waits until its second moment can be trusted.

With m_t and v_t of AdamW and r_t = r - 2 t b2^t / (1 - b2^t), r = 2/(1-b2) - 1:

    c_t = sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t))
    u_t = c_t m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)   where r_t >= 5
    u_t = m_t / (1 - b1^t)                                        before that
    p_t = p_{t-1} - rate (u_t + weight_decay p_{t-1})

Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond",
2020.
"""

import optax

from rnn_jax.training import optimizer


def make(config, rate, stacked):
  """The gradient transformation of a Config; `rate` by step."""
  del stacked
  options = config.optimizer
  return optax.chain(
    optax.scale_by_radam(options.b1, options.b2, options.eps),
    optimizer.decayed(config),
    optimizer.scaled(config, rate),
  )
