"""Kimi Delta Attention: the delta rule, and a decay for each row of the state.

    a = exp(-exp(A_h) softplus(W_2 W_1 x + c))      S' = diag(a_t) S_{t-1}
    S_t = S' + b_t k_t (v_t - S'^T k_t)^T           o_t = S_t^T q_t
    y = W_o [rms_norm(o) * sigmoid(g)]

q, k, v and b are those of parts/delta.py. W_1 has `rank` rows of each head,
rather than as many for all of them, so that heads can be sharded, and g = W_g x
has full rank; the norm is of each head and has no scale, which W_o can learn.

Shapes: q, k, a BxLxHxK, v, g, o BxLxHxP, b BxLxH, the state BxHxKxP.
Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention
Architecture", 2025.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES | {
  'gate_up': 'Hx_x_',
  'dt_bias': 'Hx_',
  'log_rate': 'H',
}


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options of the cell, section `cell` of a config."""

  rank: int = 8  # of a head's decays

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.rank < 1:
      self._refuse('rank', 'give 1 or more')
    super().check(config)

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | {'decay': self.rank}


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    super().setup()
    config = self.config
    shape = (config.heads, config.rank, config.key_width)
    init = nn.initializers.lecun_normal(batch_axis=0)
    self.gate_up = self.param('gate_up', init, shape)
    self.dt_bias = self.param('dt_bias', matrix.init_steps, shape[::2])
    self.log_rate = self.param('log_rate', matrix.init_rates, shape[:1])

  def decay(self, parts: matrix.Parts) -> jax.Array:
    raw = jnp.einsum(
      'blhr,hrk->blhk', parts['decay'].astype(jnp.float32), self.gate_up
    )
    steps = jax.nn.softplus(raw + self.dt_bias[None, None])
    return -steps * jnp.exp(self.log_rate)[None, None, :, None]

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: delta.Channels,  # type: ignore[override]
    extra: jax.Array,
  ) -> jax.Array:
    del read, extra
    gate = jax.nn.sigmoid(parts['output_gate'])
    return self.norm(o_BxLxHxP).astype(gate.dtype) * gate
