"""AdamW: Adam with weight decay apart from the gradient.

    m_t = b1 m_{t-1} + (1 - b1) g_t
    v_t = b2 v_{t-1} + (1 - b2) g_t^2
    p_t = p_{t-1} - rate (m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)
                          + weight_decay p_{t-1})

`optimizer.moments` says how m and v lie between steps (`training.moments`).
Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
"""

import optax

from rnn_jax.training import moments
from rnn_jax.training import optimizer


def make(config, rate, stacked):
  """The gradient transformation of a Config; `rate` by step."""
  del stacked
  options = config.optimizer
  adam = optax.scale_by_adam(options.b1, options.b2, options.eps)
  return optax.chain(
    moments.stored(adam, options.moments),
    optimizer.decayed(config),
    optimizer.scaled(config, rate),
  )
