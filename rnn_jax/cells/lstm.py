"""Long short-term memory, with a forget gate.

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)     g = tanh(W x_t + U h_{t-1} + b)
    c_t = f * c_{t-1} + i * g                    h_t = o * tanh(c_t)

W, U and b hold the gates in the order i, f, g, o. The output is h, or W_o h + b
where S differs from the width D of the model. Shapes: x BxLxD, h and c BxS.
Sources: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Gers et
al., "Learning to Forget: Continual Prediction with LSTM", 2000.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base

IMPLS = ('auto', 'scan')
LETTERS = {
  'projection/kernel': 'Dx_',
  'projection/bias': '_',
  'recurrent/kernel': 'Sx_',
  'output/kernel': '_xD',
  'output/bias': 'D',
}


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the cell, section `cell` of the config."""

  state_width: int = 0  # S; 0: model.width
  forget_bias: float = 1.0  # b of f at the start: what is kept of c
  dropout: float = 0.0  # on h where it leaves the cell

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.state_width < 0:
      self._refuse('state_width', 'give 1 or more, or 0 for model.width')
    if not 0 <= self.dropout < 1:
      self._refuse('dropout', 'give a number in [0, 1)')
    base.check_impl(config, IMPLS)
    if config.mesh.sequence != 1:
      raise errors.InputError(
        f"mesh.sequence={config.mesh.sequence}: model.cell='lstm' reads a row "
        'step by step: give 1'
      )

  def settle(self, config):
    """Returns the options with the width that 0 stands for."""
    return dataclasses.replace(
      self, state_width=self.state_width or config.model.width
    )

  def _refuse(self, key, remedy):
    raise errors.InputError(f'cell.{key}={getattr(self, key)!r}: {remedy}')


class State(NamedTuple):
  """What one step hands to the next."""

  h_BxS: Any
  c_BxS: Any


class Cell(base.Cell):
  """The cell; see the module's docstring."""

  def setup(self):
    self.projection = self._dense(
      4 * self._width,
      bias_init=self._begin_biases,
      kernel_init=nn.initializers.xavier_uniform(),
    )
    self.recurrent = self._dense(
      4 * self._width,
      use_bias=False,
      kernel_init=nn.initializers.orthogonal(),
    )
    if self._width != self.width:
      self.output = self._dense(self.width)
    self.drop = nn.Dropout(self.config.dropout)

  @property
  def _width(self):
    return self.config.state_width or self.width

  def _begin_biases(self, key, shape, dtype=jnp.float32):
    del key
    biases = jnp.zeros(shape, dtype)
    width = self._width
    return biases.at[width : 2 * width].set(self.config.forget_bias)

  def _dense(self, width, **options):
    return nn.Dense(
      width,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      **options,
    )

  def init_state(self, B):
    return State(*[jnp.zeros((B, self._width))] * 2)

  def project(self, x_BxLxD):
    return self.projection(x_BxLxD)

  def step(self, state, u):
    h = state.h_BxS.astype(self.policy.activations)
    gates = (u + self.recurrent(h)).astype(jnp.float32)
    i, f, g, o = jnp.split(gates, 4, -1)
    c = jax.nn.sigmoid(f) * state.c_BxS
    c = c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return State(h, c), h.astype(u.dtype)

  def emit(self, y):
    y = self.drop(y, deterministic=not self.has_rng('dropout'))
    return self.output(y) if self._width != self.width else y
