"""LAMB: AdamW's direction at the length of what it changes.

    u_t = m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)
          + weight_decay p_{t-1}
    p_t = p_{t-1} - rate |p_{t-1}| / |u_t| u_t

with m_t and v_t of AdamW and norms over a tensor, of a stack over each layer.
Where a norm is 0, the quotient is 1. The rate is relative to the size of what
it changes.
Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT
in 76 minutes", 2020.
"""

import optax

from rnn_jax.training import optimizer


def make(config, rate, stacked):
  """The gradient transformation of a Config; `rate` by step."""
  options = config.optimizer
  return optax.chain(
    optax.scale_by_adam(options.b1, options.b2, options.eps),
    optimizer.decayed(config),
    optimizer.by_layer(optax.scale_by_trust_ratio(), stacked),
    optimizer.scaled(config, rate),
  )
