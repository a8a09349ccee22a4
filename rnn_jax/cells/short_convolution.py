"""A gated short convolution: a state of the last few inputs, and no memory.

    [b, c, x] = W u        y = W_o (c * conv(b * x))        * is elementwise

`conv` is a short causal convolution of each channel. A step sees itself and the
`convolution` - 1 steps before it, within its own document: the cell is one of
several in a hybrid, beside attention.

Devices that share the channels have S / shards of them.

Shapes: u BxLxD, b, c, x, y BxLxS, S = D unless `inner_width` says otherwise;
the state is the inputs of the convolution, BxWxS. There are 4 D S + w S
parameters with w taps, and 4 S + D more with `biases`.
Source: Liquid AI, "LFM2 Technical Report", 2025.
"""

import dataclasses
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import devices

LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'taps': '_xH',
  'taps_bias': 'H',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  inner_width: int = config_lib.option(0, minimum=0)  # S; 0: model.width
  convolution: int = config_lib.option(3, minimum=1)  # taps
  biases: bool = False  # of W, of the convolution and of W_o
  dropout: float = config_lib.option(0.0, below=1)  # on what W_o reads

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    base.check_shards(config)
    base.check_channels(config, self)

  def resolve(self, config: config_lib.Config) -> Self:
    """Returns the options with the width that follows from the model's."""
    width = self.inner_width or config.model.cell_width
    return dataclasses.replace(self, inner_width=width)

  def of_shard(self, shards: int) -> Self:
    """Returns the options of a device with 1 / `shards` of the channels."""
    return dataclasses.replace(self, inner_width=self.inner_width // shards)


class Cell(base.ParallelCell):
  """The cell; see the module's docstring. Its state is BxWxS."""

  def setup(self) -> None:
    config, S = self.config, self._channels
    self.projection = self.xavier(3 * S, config.biases)
    self.taps = self.param('taps', matrix.init_taps, (config.convolution, S))
    if config.biases:
      self.taps_bias = self.param('taps_bias', nn.initializers.zeros, (S,))
    self.output = self.xavier(self.width, config.biases)
    self.drop = nn.Dropout(config.dropout)

  @property
  def _channels(self):
    """S, also of a cell without the rest of a config."""
    return self.config.inner_width or self.width

  def init_state(self, B: int) -> jax.Array:
    return jnp.zeros((B, self.config.convolution - 1, self._channels))

  def state_axes(self) -> str:
    return 'Bx_xH'

  def project(self, u_BxLxD: jax.Array) -> jax.Array:
    """Returns b, c and x, BxLxSx3."""
    # Side by side, so that a device's columns are all three of its channels.
    u = self.projection(u_BxLxD)
    return u.reshape(*u.shape[:2], -1, 3)

  def advance(
    self,
    state: jax.Array,
    u_BxLxSx3: jax.Array,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    del impl  # the plan's: the taps see any number of steps at once
    b, c, x = (u_BxLxSx3[..., n] for n in range(3))
    state, y = devices.current().convolve(
      state, b * x, self.taps.astype(x.dtype), starts_BxL
    )
    if self.config.biases:
      y = y + self.taps_bias[None, None].astype(y.dtype)
    return state.astype(jnp.float32), c * y
