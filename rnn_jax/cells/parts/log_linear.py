"""Cells that read their past by level: log-linear attention.

A linear recurrence reads the sum of what it wrote at all steps s so far, each
changed by the transitions since, S_{t,s}. Here each level of the past has its
own weight, which follows from x:

    o_t = sum over s <= t of lambda_{t,l(t,s)} S_{t,s}^T q_t
    lambda = softplus(w_l * (W_l x))        l(t, s) = bit length of (t xor s)

Level 0 is the step itself, level l the 2^(l-1) steps before the last multiple
of 2^(l-1), where that is an odd multiple: a Fenwick tree, finer for what is
recent. There are N = `levels` of them besides 0, and the last one is all that
is older. A document of up to 2^N steps has the published levels; a longer one
has no more, so that the state is of a constant size.

It is the cell's recurrence with N states for each head. That of a level l < N
starts from zero every 2^l steps: the first half of these is written, and the
second half reads it. The last one is of all steps, so the others are read with
what their weights differ by:

    o_t = lambda_N S_t^T q_t + sum over l < N of (lambda_l - lambda_N) [...]

Shapes: q BxLxHxK, o BxLxHxP, lambda BxLxHx(N+1), the state BxHNxKxP, what the
cell keeps besides, and the position, B.
Source: Guo et al., "Log-Linear Attention", 2025.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import devices

LOGICAL_AXES = {'level_scale': 'Hx_'}


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options that these cells share, section `cell` of the config.

  The cell adds the part 'levels' to `widths`, `weights` of each memory.
  """

  levels: int = config_lib.option(8, minimum=1)  # N

  @property
  def weights(self) -> int:
    """How many weights a memory has: N + 1."""
    return self.levels + 1

  @property
  def states(self) -> int:
    return self.memories * self.levels


class Extra(NamedTuple):
  """What is kept between steps besides the states."""

  cell: Any  # the cell's own
  position_B: jax.Array  # modulo the longest bucket


class _Read(NamedTuple):
  """What the recurrences of the levels read, and the cell."""

  levels: Any  # channels as the cell has them, H N of them
  own_BxLxHxP: jax.Array  # what level 0 adds to o
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array


class Cell(matrix.Cell):
  """A cell whose recurrence has `levels` states for each; the first base."""

  def setup(self) -> None:
    super().setup()
    shape = self.config.memories, self.config.weights
    self.level_scale = self.param('level_scale', nn.initializers.ones, shape)

  def init_extra(self, B: int) -> Extra:
    return Extra(super().init_extra(B), jnp.zeros(B))

  def extra_axes(self) -> Extra:
    return Extra(super().extra_axes(), 'B')  # type: ignore[arg-type]

  def read(
    self, extra: Any, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[Any, Any]:
    cell, read = super().read(extra.cell, parts, starts_BxL)
    q, k, v, loga, *beta = [x for x in self.of_heads(read) if x is not None]
    B, L, H, _ = q.shape
    weights = self._weights(parts, (B, L, H, -1))
    score = jnp.sum(q.astype(jnp.float32) * k, -1, keepdims=True)
    own = weights[..., :1] * score
    if beta:
      own *= beta[0][..., None]
    position_B, begins, writes, reads = self._places(extra, L, starts_BxL)

    def each(x_BxLxHxC, factor_BxLxHxN):
      x = x_BxLxHxC[:, :, :, None] * factor_BxLxHxN[..., None]
      return x.astype(x_BxLxHxC.dtype).reshape(B, L, -1, x.shape[-1])

    always = jnp.ones_like(weights[..., 1:])
    loga_each = jnp.where(
      begins[:, :, None, :, None], -jnp.inf, loga[:, :, :, None]
    )
    levels = type(read)(
      each(q, reads[:, :, None] * weights[..., 1:]),
      each(k, always),
      each(v, writes[:, :, None] * always),
      loga_each.reshape(B, L, -1, loga.shape[-1]),
      *(each(x[..., None], always)[..., 0] for x in beta),
    )
    return Extra(cell, position_B), _Read(levels, own * v, v, loga)

  def of_heads(self, read: Any) -> Any:
    """Returns the channels of each head: q, k, v, log a, and rates if any."""
    return read

  def _weights(self, parts, shape):
    """Returns lambda less that of the last level, which is whole."""
    raw = parts['levels'].astype(jnp.float32).reshape(shape)
    weights = jax.nn.softplus(self.level_scale[None, None] * raw)
    last = weights[..., -1:]
    return jnp.concatenate([weights[..., :-1] - last, last], -1)

  def _places(self, extra, length, starts_BxL):
    """Returns (position_B, where a bucket begins, is written, is read).

    The last three are BxLxN.
    """
    longest = 2 ** (self.config.levels - 1)
    before_B = jax.lax.stop_gradient(extra.position_B).astype(jnp.int32)
    after_B, position_BxL = devices.current().count(
      before_B, length, starts_BxL
    )
    sizes = 2 ** np.arange(1, self.config.levels, dtype=np.int32)
    place = position_BxL[..., None] % sizes[None, None]
    is_first = place < sizes[None, None] // 2
    last = jnp.ones_like(position_BxL[..., None], bool)  # the last level
    begins = jnp.concatenate([place == 0, ~last], -1)
    writes = jnp.concatenate([is_first, last], -1)
    reads = jnp.concatenate([~is_first, last], -1)
    position_B = (after_B % longest).astype(jnp.float32)
    return position_B, begins, writes, reads

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: Any,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    memory, o = super().run(memory_BxHxKxP, read.levels, starts_BxL, impl)
    own = read.own_BxLxHxP
    o = o.astype(jnp.float32).reshape(*own.shape[:3], -1, own.shape[-1])
    return memory, (jnp.sum(o, 3) + own).astype(read.v_BxLxHxP.dtype)
