"""DeltaNet: each step replaces part of what its key holds; nothing decays.

    S_t = S_{t-1} + b_t k_t (v_t - S_{t-1}^T k_t)^T        o_t = S_t^T q_t
    y = W_o rms_norm(o)

q, k, v and b follow from x as in `parts.delta`: a short convolution and a SiLU,
queries and keys of norm 1. Shapes: q, k BxLxHxK, v, o BxLxHxP, the state
BxHxKxP and the inputs of the convolution, BxWxE.
Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over
Sequence Length", 2024.
"""

import jax
import jax.numpy as jnp

from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import matrix

LOGICAL_AXES = delta.LOGICAL_AXES
Config = delta.Config


class Cell(delta.Cell):
  """The cell; see the module's docstring."""

  def decay(self, parts: matrix.Parts) -> jax.Array:
    return jnp.zeros((*parts['query'].shape[:3], 1))
