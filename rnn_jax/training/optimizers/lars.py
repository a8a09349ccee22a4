"""LARS: momentum of gradients scaled to the norm of their parameters.

    u_t = g_t + weight_decay p_{t-1}
    m_t = rate trust |p_{t-1}| / |u_t| u_t + b1 m_{t-1}
    p_t = p_{t-1} - m_t, with `optimizer.nesterov` - (m_t's first part + b1 m_t)

Norms are over a tensor, or over each layer of stacked ones; where a norm is 0,
trust times the quotient is 1. `optimizer.trust` = 1e-3 is the source's: rates
are then three decades above SGD's.
Source: You et al., "Large Batch Training of Convolutional Networks", 2017.
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

  nesterov: bool = False  # the momentum looks ahead
  # The norm of a step, relative to the parameter's.
  trust: float = config_lib.option(1e-3, minimum=0)


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  ratio = optax.scale_by_trust_ratio(trust_coefficient=options.trust)
  return optax.chain(
    optimizer.decayed(options),
    optimizer.by_layer(ratio, stacked),
    optimizer.scaled(options, rate),
    optax.trace(options.b1, options.nesterov),
  )
