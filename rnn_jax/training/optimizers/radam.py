"""RAdam: Adam that waits until its second moment can be trusted.

With AdamW's m_t and v_t, and r_t = r - 2 t b2^t / (1 - b2^t), r = 2/(1-b2) - 1:

    c_t = sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t))
    u_t = c_t m_t / (1 - b1^t) / (sqrt(v_t / (1 - b2^t)) + eps)    where r_t > 4
    u_t = m_t / (1 - b1^t)                                         before that
    p_t = p_{t-1} - rate (u_t + weight_decay p_{t-1})

optax.scale_by_radam switches at r_t >= 5 by default, and its r_t, a difference
of float32 numbers, is off by 3 where b2 = 0.9999. Here the step of the switch
is known in float64.
Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond",
2020.
"""

import dataclasses
import itertools
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
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
  return optax.chain(
    scale_by_radam(options.b1, options.b2, options.eps),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )


def scale_by_radam(
  b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
  """Returns u_t of gradients, see the module's docstring."""
  first = _first_rectified(b2)

  def update(updates, state, params=None):
    del params
    count = optax.safe_increment(state.count)
    mu = optax.tree.update_moment(updates, state.mu, b1, 1)
    nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
    mean = optax.tree.bias_correction(mu, b1, count)
    new = optax.ScaleByAdamState(count, mu, nu)
    if first is None:
      return mean, new
    factor = _factor(jnp.maximum(count, first), b2)

    def rectify(m, v):
      return jnp.where(count < first, m, factor * m / (jnp.sqrt(v) + eps))

    square = optax.tree.bias_correction(nu, b2, count)
    return jax.tree.map(rectify, mean, square), new

  return optax.GradientTransformation(optax.scale_by_adam().init, update)


def _first_rectified(b2):
  """Returns the first step with r_t > 4, or None if there is none."""
  longest = 2 / (1 - b2) - 1
  if longest <= 4:
    return None
  steps = itertools.count(1)
  return next(t for t in steps if longest - 2 * t * b2**t / (1 - b2**t) > 4)


def _factor(t, b2):
  """Returns c_t; `expm1` keeps the digits of 1 - b2^t."""
  r, x = 2 / (1 - b2) - 1, t * np.log(b2)
  r_t = r + 2 * t * jnp.exp(x) / jnp.expm1(x)
  return jnp.sqrt((r_t - 4) * (r_t - 2) * r / ((r - 4) * (r - 2) * r_t))
