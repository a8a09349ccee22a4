"""DeltaNet: a matrix state that replaces what a key holds, and never forgets.

    S_t = S_{t-1} + b_t k_t (v_t - S_{t-1}^T k_t)^T        o_t = S_t^T q_t
    y = W_o rms_norm(o)

q, k, v and b are those of parts/delta.py, with a decay of 1. The norm is of
each head and has no scale, which W_o can learn.

Shapes: q, k BxLxHxK, v, o BxLxHxP, b BxLxH, the state BxHxKxP.
Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over
Sequence Length", 2024.
"""

import dataclasses

import jax
import jax.numpy as jnp

from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options of the cell, section `cell` of a config."""

  @property
  def widths(self) -> dict[str, int]:
    widths = super().widths
    return {name: widths[name] for name in widths if name != 'output_gate'}


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def decay(self, parts: matrix.Parts) -> jax.Array:
    return jnp.zeros(parts['beta'].shape)

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: delta.Channels,  # type: ignore[override]
    extra: jax.Array,
  ) -> jax.Array:
    del parts, read, extra
    return self.norm(o_BxLxHxP)
