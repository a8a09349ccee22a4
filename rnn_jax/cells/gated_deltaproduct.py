"""Gated DeltaProduct: several corrections in each step, of a decaying state.

    a = exp(-A softplus(W_a x + d))        S_{t,0} = a_t S_{t-1}
    S_{t,j} = S_{t,j-1} + b_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T
    S_t = S_{t,n}        o_t = S_t^T q_t                      for j = 1, ..., n
    y = W_o [rms_norm(o) * silu(W_g x)]

with A > 0 and d of each head, as in `gated_deltanet`, and heads of values that
share keys as there. q, k, v and b follow from x as in `parts.delta`, with b up
to 2. Shapes: q BxLxHxK, k BxLxHx(nK), v BxLxHx(nP), a BxLxH, b BxLxHxn, o
BxLxHxP, the state BxHxKxP and the inputs of the convolution, BxWxE.
Source: Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via
Householder Products", 2025.
"""

import dataclasses

from rnn_jax.cells import gated_deltanet
from rnn_jax.cells.parts import delta_product

LOGICAL_AXES = gated_deltanet.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(delta_product.Config, gated_deltanet.Config):
  """Options of the cell, section `cell` of a config."""


class Cell(delta_product.Cell, gated_deltanet.Cell):
  """The cell; see the module's docstring."""
