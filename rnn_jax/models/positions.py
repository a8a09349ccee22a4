"""Positional embeddings, added to a step's input.

    p_t = 0 where a document begins, else p_{t-1} + 1         x_t = x_t + e(p_t)

    sinusoidal:  e(p)[2i] = sin(p w_i),  e(p)[2i+1] = cos(p w_i),
                 w_i = 10000^(-2i/D)
    learned:     e(p) = row p of a table NxD; NaN for p >= N

The state is p of the next step, so that a document may be split over calls. A
cell with rotary positions doesn't need these.
Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.ops import devices

KINDS = ('none', 'sinusoidal', 'learned')
BASE = 10_000.0


class Positions(nn.Module):
  """See the module's docstring."""

  kind: str
  width: int
  longest: int  # N of 'learned'

  def setup(self) -> None:
    if self.kind == 'learned':
      self.table = nn.Embed(
        self.longest, self.width, embedding_init=nn.initializers.normal(0.02)
      )

  def init_state(self, B: int) -> jax.Array:
    """Returns the state before a document, for B rows."""
    return jnp.zeros(B, jnp.int32)

  def __call__(
    self,
    state_B: jax.Array,
    x_BxLxD: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[jax.Array, jax.Array]:
    """Returns (state_B, x_BxLxD in its dtype)."""
    state_B, position_BxL = devices.current().count(
      state_B, x_BxLxD.shape[1], starts_BxL
    )
    if self.kind == 'learned':
      e_BxLxD = self.table(position_BxL)
    else:
      e_BxLxD = sinusoids(position_BxL, self.width)
    x = x_BxLxD + e_BxLxD.astype(x_BxLxD.dtype)
    return state_B, x


def sinusoids(position_BxL: jax.Array, width: int) -> jax.Array:
  """Returns e(p), BxLxD in float32, for an even `width` D."""
  pair = jnp.arange(width // 2, dtype=jnp.float32)
  rate = BASE ** (-2 * pair / width)
  angle = position_BxL.astype(jnp.float32)[..., None] * rate[None, None]
  both = jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1)
  return both.reshape(*position_BxL.shape, width)
