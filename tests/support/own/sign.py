"""An optimizer: each number moves by the rate, against its gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from rnn_jax import config
from rnn_jax.training import optimizer


@dataclasses.dataclass(frozen=True)
class Config(config.Optimizer):
  """Options of the optimizer."""

  dead_zone: float = config.option(0.0, minimum=0)  # smaller gradients are 0


def make(options, rate, stacked):
  """The gradient transformation; `rate` by step."""
  del stacked
  dead_zone = options.dead_zone

  def direction(gradient):
    return jnp.where(jnp.abs(gradient) > dead_zone, jnp.sign(gradient), 0.0)

  return optax.chain(
    optax.stateless(lambda updates, params: jax.tree.map(direction, updates)),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )
