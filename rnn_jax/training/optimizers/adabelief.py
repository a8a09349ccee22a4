"""AdaBelief: Adam with the variance of gradients around their first moment.

    m_t = b1 m_{t-1} + (1 - b1) g_t
    s_t = b2 s_{t-1} + (1 - b2) (g_t - m_t)^2 + eps^2
    p_t = p_{t-1} - rate (m_t / (1 - b1^t) / (sqrt(s_t / (1 - b2^t)) + eps)
                          + weight_decay p_{t-1})

The source adds eps to s_t, with eps = 1e-16: the square of `optimizer.eps` =
1e-8, AdamW's default.
Source: Zhuang et al., "AdaBelief Optimizer: Adapting Stepsizes by the Belief in
Observed Gradients", 2020.
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
  del stacked
  eps = options.eps
  return optax.chain(
    optax.scale_by_belief(options.b1, options.b2, eps, eps_root=eps**2),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )
