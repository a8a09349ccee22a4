"""Kimi Delta Attention: the delta rule in a state whose rows decay by gates.

    a = exp(-A softplus(W_2 W_1 x + d))        S' = diag(a_t) S_{t-1}
    S_t = S' + b_t k_t (v_t - S'^T k_t)^T        o_t = S_t^T q_t
    y = W_o [rms_norm(o) * sigmoid(V_2 V_1 x + c)]

with A > 0 of each head and d of each key row. q, k, v and b follow from x as in
`parts.delta`: a short convolution and a SiLU, queries and keys of norm 1. W_1
and V_1 have `rank` rows of each head, so that heads can be sharded. Pretrained
models have the published form: with `shared_gate` all heads read the same W_1 x
and V_1 x. Without `output_gate_bias` c is 0. Shapes: q, k, a BxLxHxK, v, o
BxLxHxP, b BxLxH, the state BxHxKxP and the inputs of the convolution, BxWxE.
Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention
Architecture", 2025.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import by_head
from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES | {
  'log_rate': 'Hx_',
  'step_bias': 'Hx_',
  'decay_up': 'Hx_x_',
  'output_gate_up': 'Hx_x_',
  'output_gate_bias': 'Hx_',
  '*_down/kernel': 'Dx_',
}
SHARED = ('decay', 'output_gate')  # parts with W_1 and V_1, the last ones


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options of the cell, section `cell` of a config."""

  # Of a head's decays, and of its output gates.
  rank: int = config_lib.option(16, minimum=1)
  # W_1 and V_1 of `rank` rows for all heads.
  shared_gate: bool = config_lib.option(False, excludes='mesh.tensor!=1')
  output_gate_bias: bool = True  # c

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | dict.fromkeys(SHARED, self.rank)

  @property
  def shared(self) -> tuple[str, ...]:
    return SHARED * self.shared_gate


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    super().setup()
    config = self.config
    H, K, P = config.heads, config.key_width, config.value_width
    init = nn.initializers.lecun_normal(batch_axis=0)
    self.log_rate = self.param('log_rate', matrix.init_rates, (H, 1))
    self.step_bias = self.param('step_bias', matrix.init_steps, (H, K))
    self.decay_up = self.param('decay_up', init, (H, config.rank, K))
    self.output_gate_up = self.param(
      'output_gate_up', init, (H, config.rank, P)
    )
    if config.output_gate_bias:
      self.output_gate_bias = self.param(
        'output_gate_bias', nn.initializers.zeros, (H, P)
      )

  def decay(self, parts: matrix.Parts) -> jax.Array:
    raw = by_head.product(parts['decay'], self.decay_up)
    step = jax.nn.softplus(raw + self.step_bias[None, None])
    return -jnp.exp(self.log_rate)[None, None] * step

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: delta.Channels,
    extra: jax.Array | None,
  ) -> jax.Array:
    raw = by_head.product(parts['output_gate'], self.output_gate_up)
    if self.config.output_gate_bias:
      raw += self.output_gate_bias[None, None]
    return self.gated(o_BxLxHxP, jax.nn.sigmoid(raw))
