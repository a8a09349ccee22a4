"""Lion: the sign of a momentum.

    u_t = sign(b1 m_{t-1} + (1 - b1) g_t)
    m_t = b2 m_{t-1} + (1 - b2) g_t
    p_t = p_{t-1} - rate (u_t + weight_decay p_{t-1})

Every number moves by the rate: a third to a tenth of AdamW's rate, and as much
more weight decay, are the source's advice.
Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
"""

import optax

from rnn_jax.training import optimizer


def make(config, rate, stacked):
  """The gradient transformation of a Config; `rate` by step."""
  del stacked
  options = config.optimizer
  return optax.chain(
    optax.scale_by_lion(options.b1, options.b2),
    optimizer.decayed(config),
    optimizer.scaled(config, rate),
  )
