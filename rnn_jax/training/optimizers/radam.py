"""RAdam: Adam that waits until its second moment can be trusted.

With AdamW's m_t and v_t, and r_t = r - 2 t b2^t / (1 - b2^t), r = 2/(1-b2) - 1:

    c_t = sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t))
    u_t = c_t m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)   where r_t >= 5
    u_t = m_t / (1 - b1^t)                                        before that
    p_t = p_{t-1} - rate (u_t + weight_decay p_{t-1})

Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond",
2020.
"""

import dataclasses
from collections.abc import Collection

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""


def make(
  config: config_lib.Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation of a config; `rate` is by step."""
  del stacked
  options = config.optimizer
  return optax.chain(
    optax.scale_by_radam(options.b1, options.b2, options.eps),
    optimizer.decayed(config),
    optimizer.scaled(config, rate),
  )
