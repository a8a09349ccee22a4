"""Gated DeltaNet: the delta rule, and one decay for each head as in Mamba-2.

    a = exp(-exp(A_h) softplus(W_a x + c_h))        S' = a_t S_{t-1}
    S_t = S' + b_t k_t (v_t - S'^T k_t)^T           o_t = S_t^T q_t
    y = W_o [rms_norm(o) * silu(g)]

q, k, v and b are those of parts/delta.py. The norm is of each head and has no
scale, which W_o can learn.

Shapes: q, k BxLxHxK, v, g, o BxLxHxP, a, b BxLxH, the state BxHxKxP.
Source: Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule",
2024.
"""

import dataclasses

import jax
import jax.numpy as jnp

from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES | {'dt_bias': 'H', 'log_rate': 'H'}


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options of the cell, section `cell` of a config."""

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | {'decay': 1}


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    super().setup()
    heads = (self.config.heads,)
    self.dt_bias = self.param('dt_bias', matrix.init_steps, heads)
    self.log_rate = self.param('log_rate', matrix.init_rates, heads)

  def decay(self, parts: matrix.Parts) -> jax.Array:
    raw = parts['decay'].astype(jnp.float32)
    steps = jax.nn.softplus(raw + self.dt_bias[None, None, :, None])
    return -steps * jnp.exp(self.log_rate)[None, None, :, None]
