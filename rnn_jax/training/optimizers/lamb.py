"""LAMB: AdamW's direction scaled to the norm of the parameters.

    u_t = m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)
          + weight_decay p_{t-1}
    p_t = p_{t-1} - rate |p_{t-1}| / |u_t| u_t

with AdamW's m_t and v_t, and norms over a tensor, or over each layer of stacked
ones. Where a norm is 0, the quotient is 1. The rate is relative to the norm of
the parameters.
Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT
in 76 minutes", 2020.
"""

import dataclasses
from collections.abc import Collection

import optax

from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  return optax.chain(
    optax.scale_by_adam(options.b1, options.b2, options.eps),
    optimizer.decayed(options),
    optimizer.by_layer(optax.scale_by_trust_ratio(), stacked),
    optimizer.scaled(options, rate),
  )
