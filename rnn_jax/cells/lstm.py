"""Long short-term memory, with a forget gate.

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)     g = tanh(W x_t + U h_{t-1} + b)
    c_t = f * c_{t-1} + i * g                    h_t = o * tanh(c_t)

W, U and b hold the gates in torch.nn.LSTM's order i, f, g, o; its two biases
are one here, their sum. The output is h, or W_o h + b where S differs from the
model's width D. Shapes: x BxLxD, h and c BxS. There are 4 S (D + S + 1)
parameters, and S D + D of the output.
Sources: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Gers et
al., "Learning to Forget: Continual Prediction with LSTM", 2000.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.cells import base
from rnn_jax.cells.parts import gated
from rnn_jax.cells.parts import vector

LOGICAL_AXES = vector.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(gated.Config):
  """Options of the cell, section `cell` of a config."""

  forget_bias: float = 1.0  # initial b of f, which keeps c


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array
  c_BxS: jax.Array


class Cell(gated.Cell):
  """The cell; see the module's docstring."""

  kind = 'lstm'
  parts = 4

  def setup(self) -> None:
    super().setup()
    self.recurrent = self.recurrent_dense(self.parts, use_bias=False)

  def gate_biases(self) -> tuple[float, ...]:
    return 0.0, self.config.forget_bias, 0.0, 0.0

  def init_state(self, B: int) -> State:
    return State(*(jnp.zeros((B, self.state_width)) for _ in State._fields))

  def step(self, state: State, u: jax.Array) -> tuple[State, jax.Array]:
    i, f, g, o = self._raw(state, u)
    c = jax.nn.sigmoid(f) * state.c_BxS
    c = c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return State(h, c), h.astype(u.dtype)

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    i, f, _, o = self._raw(state, u)
    names = {'write': i, 'keep': f, 'read': o}
    values = {name: jax.nn.sigmoid(x) for name, x in names.items()}
    return base.Gates(values, jax.nn.log_sigmoid(f))

  def _raw(self, state, u):
    """Returns i, f, g and o before their nonlinearity."""
    raw = u + self.recurrent(self.stored(state.h_BxS))
    return vector.split(raw, self.parts)
