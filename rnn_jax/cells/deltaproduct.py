"""DeltaProduct: each step corrects what several keys hold; nothing decays.

    S_t = A_{t,n} ... A_{t,1} S_{t-1} + what the n corrections write
    A_{t,j} = I - b_{t,j} k_{t,j} k_{t,j}^T        o_t = S_t^T q_t
    y = W_o rms_norm(o)

`parts.delta_product` has the n corrections in turn. q, k, v and b follow from x
as in `parts.delta`: a short convolution and a SiLU, queries and keys of norm 1,
with b up to 2. Shapes: q BxLxHxK, k BxLxHx(nK), v BxLxHx(nP), b BxLxHxn, o
BxLxHxP, the state BxHxKxP and the inputs of the convolution, BxWxE.
Source: Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via
Householder Products", 2025.
"""

from rnn_jax.cells import deltanet
from rnn_jax.cells.parts import delta_product

LOGICAL_AXES = deltanet.LOGICAL_AXES
Config = delta_product.Config


class Cell(delta_product.Cell, deltanet.Cell):
  """The cell; see the module's docstring."""
