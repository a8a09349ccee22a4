"""Mamba-2: a state space model whose heads decay by one number each.

    [g, v, k, q, d] = W x         [v, k, q] = silu(conv([v, k, q]) + b)
    dt = softplus(d + b_dt)       a = exp(-dt exp(A_h))
    S_t = a_t S_{t-1} + k_t (dt_t v_t)^T        o_t = S_t^T q_t + D_h v_t
    y = W_o rms_norm(o * silu(g))

k and q, B and C in the paper, are shared by the heads of a group, and the norm
is over a group; it has no scale, which W_o can learn, unless `norm_scale` asks
for one of each channel. With `norm` 'before' it is rms_norm(o) * silu(g), with
'none' there is no norm. `conv` is a short causal convolution of each channel.
`multipliers` are constants of g, v, k, q and d, and dt is at least `min_step`.
Devices that share heads have whole groups.

Shapes: v, g, o BxLxHxP, q, k BxLxGxK of G groups, dt, a BxLxH, the state
BxHxKxP and the inputs of the convolution, BxWxE.
Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient
Algorithms Through Structured State Space Duality", 2024.
"""

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import grouped
from rnn_jax.cells.parts import matrix

NORMS = 'after', 'before', 'none'  # of the gate
LOGICAL_AXES = matrix.LOGICAL_AXES | {
  'taps_bias': 'H',
  'dt_bias': 'H',
  'log_rate': 'H',
  'skip': 'H',
  'norm/scale': 'Hx_',
}


@dataclasses.dataclass(frozen=True)
class Config(grouped.Config):
  """Options of the cell, section `cell` of a config."""

  convolution: int = 4  # taps
  norm: str = config_lib.option('after', choices=NORMS)  # the gate; or 'before'
  # Of g, v, k, q and d; (): all 1.
  multipliers: tuple[float, ...] = ()
  min_step: float = config_lib.option(0.0, minimum=0)  # of dt

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.convolution < 1:
      self._refuse('convolution', 'give 1 tap or more')
    if len(self.multipliers) not in (0, len(self.widths)):
      self._refuse('multipliers', f'give {len(self.widths)}, or ()')
    if self.norm == 'none' and self.norm_scale:
      self._refuse('norm_scale', "cell.norm='none' has none: give False")
    super().check(config)

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one group's projection."""
    heads = self.heads // self.groups
    return {
      'output_gate': heads * self.value_width,
      'value': heads * self.value_width,
      'key': self.key_width,
      'query': self.key_width,
      'dt': heads,
    }


class Cell(matrix.Cell):
  """The cell; see the module's docstring. `extra` is the convolution's."""

  mixed: ClassVar[tuple[str, ...]] = ('value', 'key', 'query')

  def setup(self) -> None:
    super().setup()
    heads = (self.config.heads,)
    zeros, ones = nn.initializers.zeros, nn.initializers.ones
    self.taps_bias = self.param('taps_bias', zeros, (self.channels,))
    self.dt_bias = self.param('dt_bias', matrix.init_steps, heads)
    self.log_rate = self.param('log_rate', matrix.init_rates, heads)
    self.skip = self.param('skip', ones, heads)

  @property
  def units_per_step(self) -> int:
    return self.config.groups

  def project(self, x_BxLxD: jax.Array) -> matrix.Parts:
    parts = super().project(x_BxLxD)
    each = dict(zip(self.config.widths, self.config.multipliers, strict=False))
    return {name: x * each.get(name, 1) for name, x in parts.items()}

  def read(
    self, extra: jax.Array, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[jax.Array, matrix.Channels]:
    extra, own = self.mix(extra, parts, starts_BxL, self.taps_bias)
    B, L, *_ = own['value'].shape
    v = own['value'].reshape(B, L, self.config.heads, -1)
    raw = parts['dt'].astype(jnp.float32).reshape(B, L, -1)
    dt = jax.nn.softplus(raw + self.dt_bias[None, None])
    if self.config.min_step:
      dt = jnp.maximum(dt, self.config.min_step)
    loga = -dt * jnp.exp(self.log_rate)[None, None]
    q, k = own['query'], own['key']
    channels = matrix.Channels(q, k, v, loga[..., None], dt, self.skip)
    return extra, channels

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: matrix.Channels,
    extra: jax.Array,
  ) -> jax.Array:
    del read, extra
    gate = parts['output_gate']  # BxLxGx_
    o, gate = o_BxLxHxP.reshape(gate.shape), nn.silu(gate)
    if self.config.norm == 'none':
      return o * gate
    if self.config.norm == 'before':
      return self.norm(o) * gate
    return self.norm(o * gate)
