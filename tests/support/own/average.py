"""A cell of a user: h_t = a h_{t-1} + (1 - a) tanh(W x_t + b)."""

import dataclasses

import jax.numpy as jnp

from rnn_jax.cells.parts import vector

LOGICAL_AXES = vector.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(vector.Config):
  """Options of the cell."""

  kept: float = 0.5  # a


class Cell(vector.Cell):
  """The cell; see the module's docstring."""

  parts = 1

  def init_state(self, B):
    return jnp.zeros((B, self.state_width))

  def step(self, state, u):
    new = jnp.tanh(u.astype(jnp.float32))
    state = vector.keep(self.config.kept, state, new)
    return state, state.astype(u.dtype)
