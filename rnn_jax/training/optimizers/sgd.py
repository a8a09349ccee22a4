"""SGD with momentum.

    m_t = g_t + b1 m_{t-1}
    u_t = m_t, with `optimizer.nesterov` g_t + b1 m_t
    p_t = p_{t-1} - rate (u_t + weight_decay p_{t-1})

`optimizer.b1` = 0 is plain SGD, whose only state is the number of steps. Weight
decay is decoupled, as in AdamW.
Sources: Polyak, "Some methods of speeding up the convergence of iteration
methods", 1964; Sutskever et al., "On the importance of initialization and
momentum in deep learning", 2013, for Nesterov's in this form.
"""

import dataclasses
from collections.abc import Collection

import optax

from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base


@dataclasses.dataclass(frozen=True)
class Config(base.Momentum):
  """Options of the optimizer, section `optimizer` of the config."""

  nesterov: bool = False  # the momentum looks ahead


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  del stacked
  momentum = optax.trace(options.b1, options.nesterov)
  return optax.chain(
    momentum if options.b1 else optax.identity(),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )
