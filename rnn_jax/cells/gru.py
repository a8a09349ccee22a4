"""The gated recurrent unit.

    r, z = sigmoid(W x_t + U h_{t-1} + b)        h_t = (1 - z) * n + z * h_{t-1}

    reset 'after':   n = tanh(W x_t + b + r * (U h_{t-1} + b'))
    reset 'before':  n = tanh(W x_t + b + U (r * h_{t-1}))

W, U and b hold the gates in the order r, z, n, torch.nn.GRU's, which resets
'after'; of its two biases those of r and z are one here, their sum, and b' is
the second one of n. 'before', the published form, has no b' and pays a second
product a step, `recurrent_candidate`. z is what is kept of h: in the paper of
2014 as here, in some others it is 1 - z. The output is h, or W_o h + b where S
differs from the width D of the model. Shapes: x BxLxD, h BxS. There are
3 S (D + S + 1) + S parameters with 'after', and S D + D of the output.
Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder
for Statistical Machine Translation", 2014.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.cells import base
from rnn_jax.cells.parts import gated
from rnn_jax.cells.parts import vector

RESETS = ('after', 'before')
LETTERS = vector.LETTERS | {
  'recurrent_candidate/kernel': 'Sx_',
  'candidate_bias': '_',
}


@dataclasses.dataclass(frozen=True)
class Config(gated.Config):
  """Options of the cell, section `cell` of the config."""

  keep_bias: float = 1.0  # b of z at the start: what is kept of h
  reset: str = 'after'  # or 'before' the product with U

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.reset not in RESETS:
      self._refuse('reset', f'choose one of {RESETS}')
    super().check(config)
    if self.reset == 'before' and config.recurrence.impl == 'native':
      self._refuse('reset', "recurrence.impl='native' has 'after': use 'scan'")


class State(NamedTuple):
  """What one step hands to the next."""

  h_BxS: Any


class Cell(gated.Cell):
  """The cell; see the module's docstring."""

  kind = 'gru'
  parts = 3

  def setup(self):
    super().setup()
    if self.config.reset == 'before':
      self.recurrent = self.recurrent_dense(2, use_bias=False)
      self.recurrent_candidate = self.recurrent_dense(1, use_bias=False)
      return
    self.recurrent = self.recurrent_dense(3, use_bias=False)
    self.candidate_bias = self.param(
      'candidate_bias', nn.initializers.zeros, (self.state_width,)
    )

  def gate_biases(self):
    return 0.0, self.config.keep_bias, 0.0

  def init_state(self, B):
    return State(jnp.zeros((B, self.state_width)))

  def lacking_native(self):
    if self.config.reset == 'before':
      return "impl='native' has cell.reset='after' only: use 'scan'"
    return super().lacking_native()

  def recurrent_bias(self):
    return self.candidate_bias

  def step(self, state, u):
    r, z, of_input, of_state = self._raw(state, u)
    r, z = jax.nn.sigmoid(r), jax.nn.sigmoid(z)
    if of_state:
      read = r * (of_state[0] + self.candidate_bias[None])
    else:
      read = self.recurrent_candidate(self.stored(r * state.h_BxS))
    n = jnp.tanh(of_input + read)
    h = vector.keep(z, state.h_BxS, n)
    return State(h), h.astype(u.dtype)

  def gates(self, state, u):
    r, z, _, _ = self._raw(state, u)
    values = {'keep': jax.nn.sigmoid(z), 'read': jax.nn.sigmoid(r)}
    return base.Gates(values, jax.nn.log_sigmoid(z))

  def _raw(self, state, u):
    """r and z before their nonlinearity, W x + b and [U h] of n.

    The last one is empty where the reset comes before the product.
    """
    before = self.config.reset == 'before'
    of_state = self.recurrent(self.stored(state.h_BxS))
    r, z, *of_state = vector.split(of_state, 2 if before else 3)
    x_r, x_z, of_input = vector.split(u, 3)
    return x_r + r, x_z + z, of_input, of_state
