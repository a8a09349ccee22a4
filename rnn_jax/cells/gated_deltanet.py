"""Gated DeltaNet: the delta rule in a state that each head lets decay.

    a = exp(-A softplus(W_a x + d))        S' = a_t S_{t-1}
    S_t = S' + b_t k_t (v_t - S'^T k_t)^T        o_t = S_t^T q_t
    y = W_o [rms_norm(o) * silu(W_g x)]

with A > 0 and d of each head. q, k, v and b follow from x as in `parts.delta`:
a short convolution and a SiLU, queries and keys of norm 1. Shapes: q, k
BxLxHxK, v, o BxLxHxP, a, b BxLxH, the state BxHxKxP and the inputs of the
convolution, BxWxE.
Source: Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule",
2024.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES | {'log_rate': 'Hx_', 'step_bias': 'Hx_'}


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options of the cell, section `cell` of a config."""

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | {'decay': 1, 'output_gate': self.value_width}


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    super().setup()
    shape = self.config.heads, 1
    self.log_rate = self.param('log_rate', matrix.init_rates, shape)
    self.step_bias = self.param('step_bias', matrix.init_steps, shape)

  def decay(self, parts: matrix.Parts) -> jax.Array:
    raw = parts['decay'].astype(jnp.float32) + self.step_bias[None, None]
    return -jnp.exp(self.log_rate)[None, None] * jax.nn.softplus(raw)

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: delta.Channels,
    extra: jax.Array | None,
  ) -> jax.Array:
    return self.gated(o_BxLxHxP, nn.silu(parts['output_gate']))
