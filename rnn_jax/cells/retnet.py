"""Retention: rotary queries and keys, and one fixed decay for each head.

    q = rotary(W_q x)    k = rotary(W_k x / sqrt(K))    v = W_v x    g = W_g x
    S_t = gamma_h S_{t-1} + k_t v_t^T        o_t = S_t^T q_t
    y = W_o [rms_norm(o) * silu(g)],    gamma_h = 1 - 2^(-5-h),  h = 0, 1, ...

The angle of a step grows with its position in the document, which is part of
the state. The norm is of each head and has no scale, which W_o can learn.

Shapes: q, k BxLxHxK, v, g, o BxLxHxP, the state BxHxKxP.
Source: Sun et al., "Retentive Network: A Successor to Transformer for Large
Language Models", 2023.
"""

import dataclasses

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import devices
from rnn_jax.ops import rotary

LOGICAL_AXES = matrix.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options of the cell, section `cell` of a config."""

  rotary: float = 10_000.0  # base of rotary positions

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1')
    if self.key_width % 2:
      self._refuse('key_width', 'rotary positions need an even number')
    super().check(config)


class Cell(matrix.Cell):
  """The cell; see the module's docstring. `extra` is the position, B."""

  def init_extra(self, B: int) -> jax.Array:
    return jnp.zeros(B)

  def extra_axes(self) -> str:
    return 'B'

  def read(
    self, extra: jax.Array, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[jax.Array, matrix.Channels]:
    config, v = self.config, parts['value']
    steps_B = jax.lax.stop_gradient(extra).astype(jnp.int32)
    steps_B, position_BxL = devices.current().count(
      steps_B, v.shape[1], starts_BxL
    )
    q, k = (
      rotary.rotate(parts[name], position_BxL, config.rotary).astype(v.dtype)
      for name in ('query', 'key')
    )
    # Of all heads, this device has those of its shard.
    h = devices.current().shard('H') * config.heads + jnp.arange(config.heads)
    loga_H = jnp.log1p(-jnp.exp2(-5.0 - h))
    loga = jnp.broadcast_to(loga_H[None, None, :, None], (*v.shape[:3], 1))
    k = k * config.key_width**-0.5
    return steps_B.astype(jnp.float32), matrix.Channels(q, k, v, loga)
