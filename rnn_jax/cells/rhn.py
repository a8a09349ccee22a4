"""Recurrent highway network: several layers deep within one step.

    s_0 = h_{t-1}                                     for l = 1 ... n:
    c = tanh(W x_t [l = 1] + U_l s_{l-1} + b_l)       (the candidate)
    t = sigmoid(W x_t [l = 1] + U_l s_{l-1} + b_l)    (the transform gate)
    s_l = t * c + (1 - t) * s_{l-1}                   h_t = s_n

Only the first layer reads the input; the carry gate is coupled, 1 - t. W, U and
b hold c, then t. The output is h, or W_o h + b where S differs from the model's
width D. Shapes: x BxLxD, h BxS. There are 2 S (D + n S + n) parameters, and
S D + D of the output.
Source: Zilly et al., "Recurrent Highway Networks", 2016.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import gated
from rnn_jax.cells.parts import vector
from rnn_jax.ops import gated_layers

LOGICAL_AXES = vector.LOGICAL_AXES | {
  'recurrents_*/kernel': 'Sx_',
  'recurrents_*/bias': '_',
}


@dataclasses.dataclass(frozen=True)
class Config(gated.Config):
  """Options of the cell, section `cell` of a config."""

  depth: int = config_lib.option(3, minimum=1)  # n, layers within a step
  transform_bias: float = -2.0  # initial b of t: sigmoid(-2) = .12


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array


class Cell(gated.Cell):
  """The cell; see the module's docstring."""

  kind = 'rhn'
  parts = 2

  def setup(self) -> None:
    super().setup()
    # The first layer's bias is the input's.
    first = self.recurrent_dense(self.parts, use_bias=False)
    others = [
      self.recurrent_dense(self.parts, bias_init=self.init_biases)
      for _ in range(self.config.depth - 1)
    ]
    self.recurrents = [first, *others]

  def gate_biases(self) -> tuple[float, ...]:
    return 0.0, self.config.transform_bias

  def init_state(self, B: int) -> State:
    return State(jnp.zeros((B, self.state_width)))

  def run_native(
    self, state: State, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[State, jax.Array]:
    layers = [dense.variables['params'] for dense in self.recurrents]
    h, y = gated_layers.recurrence(
      'rhn',
      state.h_BxS,
      u,
      tuple(layer['kernel'] for layer in layers),
      tuple(layer['bias'] for layer in layers[1:]),
      starts_BxL=starts_BxL,
    )
    return State(h), y

  def step(self, state: State, u: jax.Array) -> tuple[State, jax.Array]:
    s, _ = self._run_layers(state, u)
    return State(s), s.astype(u.dtype)

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    _, raw = self._run_layers(state, u)
    values = {f'take_{n}': jax.nn.sigmoid(t) for n, t in enumerate(raw, 1)}
    loga: Any = sum(jax.nn.log_sigmoid(-t) for t in raw)
    return base.Gates({'keep': jnp.exp(loga), **values}, loga)

  def _run_layers(self, state, u):
    """Returns (s_n, [t_1, ..., t_n] before their nonlinearity)."""
    s, transform = state.h_BxS, []
    for number, recurrent in enumerate(self.recurrents):
      read = recurrent(self.stored(s))
      c, t = vector.split(read if number else u + read, self.parts)
      s = vector.keep(1 - jax.nn.sigmoid(t), s, jnp.tanh(c))
      transform.append(t)
    return s, transform
