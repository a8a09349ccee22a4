"""HGRN2: the key is what the gate forgets, k = 1 - a.

    q = silu(W_q x)    v = W_v x    a = beta + (1 - beta) sigmoid(W_a x)
    S_t = diag(a_t) S_{t-1} + (1 - a_t) v_t^T        o_t = S_t^T q_t
    y = W_o rms_norm(o)

Published, the lower bound beta grows from 0 in the first layer to the last by
learned increments. Here a cell doesn't know its layer: `lower_bound` is one
constant for all. The norm is of each head, so that heads can be sharded, and
has no scale, which W_o can learn.

Shapes: q, a BxLxHxK, v, o BxLxHxP, the state BxHxKxP.
Source: Qin et al., "HGRN2: Gated Linear RNNs with State Expansion", 2024.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = matrix.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options of the cell, section `cell` of a config."""

  lower_bound: float = config_lib.option(0.0, below=1)  # beta

  @property
  def widths(self) -> dict[str, int]:
    keys = self.key_width
    return {'query': keys, 'gate': keys, 'value': self.value_width}


class Cell(matrix.Cell):
  """The cell; see the module's docstring."""

  def read(
    self, extra: None, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[None, matrix.Channels]:
    del starts_BxL
    raw, beta = parts['gate'].astype(jnp.float32), self.config.lower_bound
    loga = jax.nn.log_sigmoid(raw)
    if beta:
      loga = jnp.log(beta + (1 - beta) * jax.nn.sigmoid(raw))
    k = (1 - beta) * jax.nn.sigmoid(-raw)  # 1 - a loses the digits of a small k
    q, v = nn.silu(parts['query']), parts['value']
    return extra, matrix.Channels(q, k.astype(v.dtype), v, loga)

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: matrix.Channels,
    extra: None,
  ) -> jax.Array:
    del parts, read, extra
    return self.norm(o_BxLxHxP)
