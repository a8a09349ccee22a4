"""The delta rule with n corrections in each step: DeltaProduct.

    S_{t,0} = diag(a_t) S_{t-1}
    S_{t,j} = S_{t,j-1} + b_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T
    S_t = S_{t,n}        o_t = S_t^T q_t                      for j = 1, ..., n

Each correction has a key, a value and a rate of its own. So a step multiplies
the state by a product of n generalized Householder matrices, I - b k k^T, and
with b up to 2 by any product of n reflections; two of them are a rotation. With
n = 1 it is the delta rule.

It runs as the delta rule over n L steps, in any of its forms: the first of n
decays, the last is read. Shapes: q BxLxHxK, k BxLxHx(nK), v BxLxHx(nP), a
BxLxHx1, and all of them BxnLxHx_ in the recurrence; the state is that of
`parts.delta`.
Source: Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via
Householder Products", 2025.
"""

import dataclasses

import jax

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import delta
from rnn_jax.cells.parts import in_turn
from rnn_jax.cells.parts import matrix

EACH = 'key', 'value', 'beta'  # the parts that each correction has


@dataclasses.dataclass(frozen=True)
class Config(delta.Config):
  """Options that these cells share, section `cell` of the config."""

  householders: int = config_lib.option(2, minimum=1)  # n
  max_beta: float = 2.0

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one head's projection."""
    return {
      name: width * (self.householders if name in EACH else 1)
      for name, width in super().widths.items()
    }


class Cell(delta.Cell):
  """A cell without its `decay`; the first of its bases."""

  @property
  def chunk_length(self) -> int | None:
    steps = super().chunk_length
    return steps and steps * self.config.householders

  def read(
    self,
    extra: jax.Array | None,
    parts: matrix.Parts,
    starts_BxL: jax.Array | None,
  ) -> tuple[jax.Array | None, delta.Channels]:
    n = self.config.householders
    extra, mixed = self.mix(extra, parts, starts_BxL)
    q, k, v = mixed.values()
    beta = self.config.max_beta * self._write(parts)
    loga = in_turn.only(self.decay(parts), 0, n)
    k, v, beta = (in_turn.each(x, n) for x in (k, v, beta))
    q = in_turn.only(q, n - 1, n)
    return extra, self.channels_of(q, k, v, loga, beta)

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: delta.Channels,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    n = self.config.householders
    if impl == 'step':
      memory = memory_BxHxKxP
      *first, last = (
        delta.Channels(*(x[:, j : j + 1] for x in read)) for j in range(n)
      )
      for one in first:
        memory, _ = super().run(memory, one, None, impl)
      return super().run(memory, last, None, impl)
    starts = None if starts_BxL is None else in_turn.only(starts_BxL, 0, n)
    memory, o = super().run(memory_BxHxKxP, read, starts, impl)
    return memory, o.reshape(o.shape[0], -1, n, *o.shape[2:])[:, :, -1]
