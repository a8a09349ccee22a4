"""Gated DeltaNet: the delta rule in a state that each head lets decay.

    a = exp(-A softplus(W_a x + d))        S' = a_t S_{t-1}
    S_t = S' + b_t k_t (v_t - S'^T k_t)^T        o_t = S_t^T q_t
    y = W_o [rms_norm(o) * silu(W_g x)]

with A > 0 and d of each head. q, k, v and b follow from x as in `parts.delta`:
a short convolution and a SiLU, queries and keys of norm 1. With `value_heads`
above `heads` several heads of values, each with its own a, b, g and state,
share a query and a key. Shapes: q, k BxLxHxK, v, o BxLxHxP, a, b BxLxH, the
state BxHxKxP and the inputs of the convolution, BxWxE.
Source: Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule",
2024; Qwen Team, "Qwen3-Next", 2025 (heads of values that share keys).
"""

import dataclasses
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES | {'log_rate': 'Hx_', 'step_bias': 'Hx_'}


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options of the cell, section `cell` of a config."""

  # Of values, which share queries and keys; 0: heads.
  value_heads: int = config_lib.option(0, minimum=0)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    if self.value_heads % self.heads:
      self._refuse('value_heads', f'cell.heads={self.heads} must divide it')

  def of_shard(self, shards: int) -> Self:
    own = super().of_shard(shards)
    return dataclasses.replace(own, value_heads=self.value_heads // shards)

  @property
  def memories(self) -> int:
    return self.value_heads or self.heads

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of the projection that a key head has."""
    shared = self.memories // self.heads
    values = shared * self.value_width
    return super().widths | {
      'value': values,
      'beta': shared,
      'decay': shared,
      'output_gate': values,
    }


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    super().setup()
    shape = self.config.memories, 1
    self.log_rate = self.param('log_rate', matrix.init_rates, shape)
    self.step_bias = self.param('step_bias', matrix.init_steps, shape)

  def decay(self, parts: matrix.Parts) -> jax.Array:
    raw = parts['decay'].astype(jnp.float32)
    raw = raw.reshape(*raw.shape[:2], -1, 1) + self.step_bias[None, None]
    return -jnp.exp(self.log_rate)[None, None] * jax.nn.softplus(raw)

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: delta.Channels,
    extra: jax.Array | None,
  ) -> jax.Array:
    gate = parts['output_gate'].reshape(o_BxLxHxP.shape)
    return self.gated(o_BxLxHxP, nn.silu(gate))
