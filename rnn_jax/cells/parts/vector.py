"""Cells with a state of S numbers that run step by step.

    u = W x + b for all steps at once      (state, h) = step(state, u_t)

The output is h, or W_o h + b where S differs from the model's width D. A cell's
file defines the number of gates and `step`.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base

LOGICAL_AXES = {
  'projection/kernel': 'Dx_',
  'projection/bias': '_',
  'recurrent/kernel': 'Sx_',
  'output/kernel': '_xD',
  'output/bias': 'D',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options that these cells share, section `cell` of the config."""

  state_width: int = config_lib.option(0, minimum=0)  # S; 0: model.width
  dropout: float = config_lib.option(0.0, below=1)  # on the output h

  excludes: ClassVar[tuple[str, ...]] = ('mesh.sequence!=1',)

  def resolve(self, config: config_lib.Config) -> Self:
    """Returns the options with a cell's width for a state_width of 0."""
    return dataclasses.replace(
      self, state_width=self.state_width or config.model.cell_width
    )


class Cell(base.Cell):
  """The cell without its `step` and its recurrent weights.

  Attributes:
    parts: the width of `projection` in units of S, set by the cell.
  """

  parts = 0

  def setup(self) -> None:
    self.projection = self.dense(
      self.parts * self.state_width,
      bias_init=self.init_biases,
      kernel_init=nn.initializers.xavier_uniform(),
    )
    if self.state_width != self.width:
      self.output = self.dense(self.width)
    self.drop = nn.Dropout(self.config.dropout)

  @property
  def state_width(self) -> int:
    """S."""
    return self.config.state_width or self.width

  def gate_biases(self) -> tuple[float, ...]:
    """Returns the initial bias of each gate."""
    return (0.0,) * self.parts

  def init_biases(
    self,
    key: jax.Array,
    shape: tuple[int, ...],
    dtype: jax.typing.DTypeLike = jnp.float32,
  ) -> jax.Array:
    """Returns the initial biases of all gates, as a linen initializer."""
    del key, shape
    return jnp.repeat(jnp.array(self.gate_biases(), dtype), self.state_width)

  def recurrent_dense(self, gates: int, **options: Any) -> nn.Dense:
    """Returns the nn.Dense of so many gates that reads h, orthogonal."""
    return self.dense(
      gates * self.state_width,
      kernel_init=nn.initializers.orthogonal(),
      **options,
    )

  def stored(self, h_BxS: jax.Array) -> jax.Array:
    """Returns h in the dtype of activations."""
    return h_BxS.astype(self.policy.activations)

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    return self.projection(x_BxLxD)

  def emit(self, y: jax.Array) -> jax.Array:
    y = self.drop(y, deterministic=not self.has_rng('dropout'))
    return self.output(y) if self.state_width != self.width else y


def split(x: jax.Array, parts: int) -> list[jax.Array]:
  """Splits the last axis into equal parts, in float32."""
  return jnp.split(x.astype(jnp.float32), parts, -1)


def keep(kept: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
  """Returns kept * old + (1 - kept) * new."""
  return kept * old + (1 - kept) * new
