"""LARS: momentum of gradients at the length of what they change.

    u_t = g_t + weight_decay p_{t-1}
    m_t = rate trust |p_{t-1}| / |u_t| u_t + b1 m_{t-1}
    p_t = p_{t-1} - m_t, with `optimizer.nesterov` - (m_t's first part + b1 m_t)

Norms are over a tensor, of a stack over each layer; where one is 0, trust times
the quotient is 1. `optimizer.trust` = 1e-3 is the source's: rates are then
three decades above SGD's.
Source: You et al., "Large Batch Training of Convolutional Networks", 2017.
"""

import optax

from rnn_jax.training import optimizer


def make(config, rate, stacked):
  """The gradient transformation of a Config; `rate` by step."""
  options = config.optimizer
  ratio = optax.scale_by_trust_ratio(trust_coefficient=options.trust)
  return optax.chain(
    optimizer.decayed(config),
    optimizer.by_layer(ratio, stacked),
    optimizer.scaled(config, rate),
    optax.trace(options.b1, options.nesterov),
  )
