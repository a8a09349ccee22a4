"""Recurrent highway network: several layers deep within one step.

    s_0 = h_{t-1}                                     for l = 1 ... n:
    c = tanh(W x_t [l = 1] + U_l s_{l-1} + b_l)       (the candidate)
    t = sigmoid(W x_t [l = 1] + U_l s_{l-1} + b_l)    (how much of it is taken)
    s_l = t * c + (1 - t) * s_{l-1}                   h_t = s_n

The input enters the first layer alone; the carry gate is coupled, 1 - t. W, U
and b hold c, then t. The output is h, or W_o h + b where S differs from the
width D of the model. Shapes: x BxLxD, h BxS. There are
2 S (D + n S + n) parameters, and S D + D of the output.
Source: Zilly et al., "Recurrent Highway Networks", 2016.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.cells import base
from rnn_jax.cells.parts import vector

LETTERS = vector.LETTERS | {
  'recurrents_*/kernel': 'Sx_',
  'recurrents_*/bias': '_',
}


@dataclasses.dataclass(frozen=True)
class Config(vector.Config):
  """Options of the cell, section `cell` of the config."""

  depth: int = 3  # n, layers within a step
  transform_bias: float = -2.0  # b of t at the start: sigmoid(-2) = .12 taken

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.depth < 1:
      self._refuse('depth', 'give 1 or more')
    super().check(config)


class State(NamedTuple):
  """What one step hands to the next."""

  h_BxS: Any


class Cell(vector.Cell):
  """The cell; see the module's docstring."""

  parts = 2

  def setup(self):
    super().setup()
    # The first layer's bias is the input's.
    first = self.recurrent_dense(self.parts, use_bias=False)
    others = [
      self.recurrent_dense(self.parts, bias_init=self.begin_biases)
      for _ in range(self.config.depth - 1)
    ]
    self.recurrents = [first, *others]

  def gate_biases(self):
    return 0.0, self.config.transform_bias

  def init_state(self, B):
    return State(jnp.zeros((B, self.state_width)))

  def step(self, state, u):
    s, _ = self._climb(state, u)
    return State(s), s.astype(u.dtype)

  def gates(self, state, u):
    _, taken = self._climb(state, u)
    values = {f'take_{n}': jax.nn.sigmoid(t) for n, t in enumerate(taken, 1)}
    loga = sum(jax.nn.log_sigmoid(-t) for t in taken)
    return base.Gates({'keep': jnp.exp(loga), **values}, loga)

  def _climb(self, state, u):
    """Returns (s_n, [t_1, ..., t_n] before their nonlinearity)."""
    s, taken = state.h_BxS, []
    for number, recurrent in enumerate(self.recurrents):
      read = recurrent(self.stored(s))
      c, t = vector.split(read if number else u + read, self.parts)
      s = vector.keep(1 - jax.nn.sigmoid(t), s, jnp.tanh(c))
      taken.append(t)
    return s, taken
