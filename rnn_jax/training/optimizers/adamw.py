"""AdamW: Adam with decoupled weight decay.

    m_t = b1 m_{t-1} + (1 - b1) g_t
    v_t = b2 v_{t-1} + (1 - b2) g_t^2
    p_t = p_{t-1} - rate (m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)
                          + weight_decay p_{t-1})

`optimizer.moments` is the format of m and v between steps (`training.moments`).
Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
"""

import dataclasses
from collections.abc import Collection

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import moments
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  # How both moments are stored.
  moments: str = config_lib.option('float32', choices='training.moments:KINDS')

  @property
  def blockwise_state(self) -> bool:
    """Whether blocks of its state run across the axes of a parameter."""
    return self.moments == 'int8'


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  del stacked
  adam = optax.scale_by_adam(options.b1, options.b2, options.eps)
  return optax.chain(
    moments.stored(adam, options.moments),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )
