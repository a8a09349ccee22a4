"""Gated Linear Attention: each row of the state forgets by a gate of x.

    q = W_q x / sqrt(K)    k = W_k x    v = W_v x    g = W_g x
    a = sigmoid(W_2 W_1 x + b)^(1/tau)
    S_t = diag(a_t) S_{t-1} + k_t v_t^T        o_t = S_t^T q_t
    y = W_o [rms_norm(o) * silu(g)]

tau = 16 lets a gate forget slowly. W_1 has `rank` rows of each head, rather
than as many for all of them, so that heads can be sharded; their norm has no
scale, which W_o can learn. Pretrained models have the published forms: with
`shared_gate` all heads read the same W_1 x, with `norm_scale` they share a
scale.

Shapes: q, k, a BxLxHxK, v, g, o BxLxHxP, the state BxHxKxP.
Source: Yang et al., "Gated Linear Attention Transformers with Hardware-
Efficient Training", 2023.
"""

import dataclasses

import flax.linen as nn
import jax

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import by_head
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = matrix.LOGICAL_AXES | {
  'gate_up': 'Hx_x_',
  'gate_bias': 'Hx_',
  'gate_down/kernel': 'Dx_',
}


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options of the cell, section `cell` of a config."""

  rank: int = config_lib.option(16, minimum=1)  # of a head's gates
  # One W_1 of `rank` rows for all heads.
  shared_gate: bool = config_lib.option(False, excludes='mesh.tensor!=1')
  temperature: float = config_lib.option(16.0, above=0)  # tau

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | {'gate': self.rank}

  @property
  def shared(self) -> tuple[str, ...]:
    return ('gate',) * self.shared_gate


class Cell(matrix.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    super().setup()
    config = self.config
    shape = (config.heads, config.rank, config.key_width)
    init = nn.initializers.lecun_normal(batch_axis=0)
    self.gate_up = self.param('gate_up', init, shape)
    zeros = nn.initializers.zeros
    self.gate_bias = self.param('gate_bias', zeros, shape[::2])

  def read(
    self, extra: None, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[None, matrix.Channels]:
    del starts_BxL
    raw = by_head.product(parts['gate'], self.gate_up)
    loga = jax.nn.log_sigmoid(raw + self.gate_bias[None, None])
    q = parts['query'] * self.config.key_width**-0.5
    return extra, matrix.Channels(
      q, parts['key'], parts['value'], loga / self.config.temperature
    )
