"""The gated recurrent unit.

    r, z = sigmoid(W x_t + U h_{t-1} + b)        h_t = (1 - z) * n + z * h_{t-1}

    reset 'after':   n = tanh(W x_t + b + r * (U h_{t-1} + b'))
    reset 'before':  n = tanh(W x_t + b + U (r * h_{t-1}))

W, U and b hold the gates in torch.nn.GRU's order r, z, n. That GRU resets
'after'; its two biases of r and z are one here, their sum, and b' is its second
bias of n. 'before', the published form, has no b' and needs a second product
per step, `recurrent_candidate`. z multiplies h_{t-1}, as in the paper of 2014;
in some others 1 - z does. The output is h, or W_o h + b where S differs from
the model's width D. Shapes: x BxLxD, h BxS. There are 3 S (D + S + 1) + S
parameters with 'after', and S D + D of the output.
Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder
for Statistical Machine Translation", 2014.
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import gated
from rnn_jax.cells.parts import vector
from rnn_jax.ops import gated_layers

RESETS = ('after', 'before')
LOGICAL_AXES = vector.LOGICAL_AXES | {
  'recurrent_candidate/kernel': 'Sx_',
  'candidate_bias': '_',
}


@dataclasses.dataclass(frozen=True)
class Config(gated.Config):
  """Options of the cell, section `cell` of a config."""

  keep_bias: float = 1.0  # initial b of z, which keeps h
  # Or 'before' the product with U.
  reset: str = config_lib.option('after', choices=RESETS)


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array


class Cell(gated.Cell):
  """The cell; see the module's docstring."""

  kind = 'gru'
  parts = 3

  def setup(self) -> None:
    super().setup()
    if self.config.reset == 'before':
      self.recurrent = self.recurrent_dense(2, use_bias=False)
      self.recurrent_candidate = self.recurrent_dense(1, use_bias=False)
      return
    self.recurrent = self.recurrent_dense(3, use_bias=False)
    self.candidate_bias = self.param(
      'candidate_bias', nn.initializers.zeros, (self.state_width,)
    )

  def gate_biases(self) -> tuple[float, ...]:
    return 0.0, self.config.keep_bias, 0.0

  def init_state(self, B: int) -> State:
    return State(jnp.zeros((B, self.state_width)))

  def recurrent_bias(self) -> jax.Array:
    return self.candidate_bias

  def run_native(
    self, state: State, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[State, jax.Array]:
    if self.config.reset == 'after':
      return super().run_native(state, u, starts_BxL)
    products = self.recurrent, self.recurrent_candidate
    kernels = tuple(dense.variables['params']['kernel'] for dense in products)
    h, y = gated_layers.recurrence(
      'gru_before', state.h_BxS, u, kernels, starts_BxL=starts_BxL
    )
    return State(h), y

  def step(self, state: State, u: jax.Array) -> tuple[State, jax.Array]:
    r, z, n_input, n_state = self._raw(state, u)
    r, z = jax.nn.sigmoid(r), jax.nn.sigmoid(z)
    if n_state:
      read = r * (n_state[0] + self.candidate_bias[None])
    else:
      read = self.recurrent_candidate(self.stored(r * state.h_BxS))
    n = jnp.tanh(n_input + read)
    h = vector.keep(z, state.h_BxS, n)
    return State(h), h.astype(u.dtype)

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    r, z, _, _ = self._raw(state, u)
    values = {'keep': jax.nn.sigmoid(z), 'read': jax.nn.sigmoid(r)}
    return base.Gates(values, jax.nn.log_sigmoid(z))

  def _raw(self, state, u):
    """Returns r and z before their nonlinearity, W x + b and [U h] of n.

    The last is empty if the reset comes before the product.
    """
    before = self.config.reset == 'before'
    product = self.recurrent(self.stored(state.h_BxS))
    r, z, *n_state = vector.split(product, 2 if before else 3)
    x_r, x_z, n_input = vector.split(u, 3)
    return x_r + r, x_z + z, n_input, n_state
