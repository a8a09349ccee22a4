"""Lion: the sign of a momentum.

    u_t = sign(b1 m_{t-1} + (1 - b1) g_t)
    m_t = b2 m_{t-1} + (1 - b2) g_t
    p_t = p_{t-1} - rate (u_t + weight_decay p_{t-1})

Every number changes by the rate. The source advises a third to a tenth of
AdamW's rate, and 3 to 10 times its weight decay.
Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
"""

import dataclasses
from collections.abc import Collection

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base


@dataclasses.dataclass(frozen=True)
class Config(base.Momentum):
  """Options of the optimizer, section `optimizer` of the config."""

  b2: float = config_lib.option(0.99, below=1)  # decay of the momentum


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  del stacked
  return optax.chain(
    optax.scale_by_lion(options.b1, options.b2),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )
