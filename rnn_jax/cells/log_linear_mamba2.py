"""Log-linear Mamba-2: Mamba-2 that reads its past by level.

    S_{t,s} = a_t ... a_{s+1} k_s (dt_s v_s)^T
    o_t = sum over s <= t of lambda_{t,l(t,s)} S_{t,s}^T q_t
    y = W_o rms_norm((o + D v) * silu(g))

`mamba2` has all but the weights lambda, and its options; `parts.log_linear` has
the levels l and their states. Shapes: lambda BxLxHx(N+1), the state BxHNxKxP,
the inputs of the convolution, BxWxE, and the position, B.
Source: Guo et al., "Log-Linear Attention", 2025.
"""

import dataclasses
from typing import Any

import jax

from rnn_jax.cells import mamba2
from rnn_jax.cells.parts import log_linear
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import gla

LOGICAL_AXES = mamba2.LOGICAL_AXES | log_linear.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(log_linear.Config, mamba2.Config):
  """Options of the cell, section `cell` of a config."""

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one group's projection."""
    heads = self.heads // self.groups
    return super().widths | {'levels': heads * self.weights}


class Cell(log_linear.Cell, mamba2.Cell):
  """The cell; see the module's docstring."""

  def of_heads(self, read: matrix.Channels) -> matrix.Channels:
    q, k, v = gla.of_heads(*read[:3])
    assert read.rate_BxLxH is not None
    # Levels write v; with dt in the key, it is also the input of the skip.
    k = (k * read.rate_BxLxH[..., None]).astype(v.dtype)
    return matrix.Channels(q, k, v, read.loga_BxLxHxK)

  def finish(
    self, o_BxLxHxP: jax.Array, parts: matrix.Parts, read: Any, extra: Any
  ) -> jax.Array:
    o_BxLxHxP = gla.with_skip(o_BxLxHxP, read.v_BxLxHxP, self.skip)
    return super().finish(o_BxLxHxP, parts, read, extra)
