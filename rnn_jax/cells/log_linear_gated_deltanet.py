"""Log-linear Gated DeltaNet: the delta rule that reads its past by level.

    T_t = a_t (I - b_t k_t k_t^T)        S_{t,s} = T_t ... T_{s+1} b_s k_s v_s^T
    o_t = sum over s <= t of lambda_{t,l(t,s)} S_{t,s}^T q_t
    y = W_o [rms_norm(o) * silu(W_g x)]

`gated_deltanet` has all but the weights lambda, and its options;
`parts.log_linear` has the levels l and their states. Shapes: lambda
BxLxHx(N+1), the state BxHNxKxP, the inputs of the convolution, BxWxE, and the
position, B.
Source: Guo et al., "Log-Linear Attention", 2025.
"""

import dataclasses

from rnn_jax.cells import gated_deltanet
from rnn_jax.cells.parts import log_linear

LOGICAL_AXES = gated_deltanet.LOGICAL_AXES | log_linear.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(log_linear.Config, gated_deltanet.Config):
  """Options of the cell, section `cell` of a config."""

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one head's projection."""
    shared = self.memories // self.heads
    return super().widths | {'levels': shared * self.weights}


class Cell(log_linear.Cell, gated_deltanet.Cell):
  """The cell; see the module's docstring."""
