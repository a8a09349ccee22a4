"""A matrix for each head, which reads that head only: a block-diagonal matrix.

    y_h = x_h W_h + b_h

Devices that share the heads have those of their own. Shapes: x BxLxHxI, y
BxLxHxO, W HxIxO, b HxO.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.ops import precision


class Dense(nn.Module):
  """See the module's docstring.

  Attributes:
    features: O.
    policy: number formats.
    biased: whether there is a b.
  """

  features: int
  policy: precision.Policy
  biased: bool = False

  @nn.compact
  def __call__(self, x_BxLxHxI: jax.Array) -> jax.Array:
    """Returns y_BxLxHxO."""
    heads, width = x_BxLxHxI.shape[2:]
    kernel = self.param('kernel', init_each, (heads, width, self.features))

    def one(x_BxLxI, kernel_IxO):
      return self.policy.dot_general(
        x_BxLxI, kernel_IxO, (((2,), (0,)), ((), ()))
      )

    y = jax.vmap(one, (2, 0), 2)(x_BxLxHxI, kernel)
    if not self.biased:
      return y
    zeros = nn.initializers.zeros
    bias = self.param('bias', zeros, (heads, self.features))
    return y + bias[None, None].astype(y.dtype)


def product(x_BxLxHxI: jax.Array, kernel_HxIxO: jax.Array) -> jax.Array:
  """Returns x W of each head, BxLxHxO, in float32: what gates need.

  All heads read an x of one head, BxLx1xI.
  """
  x_BxLxHxI = x_BxLxHxI.astype(jnp.float32)
  if x_BxLxHxI.shape[2] == 1 < kernel_HxIxO.shape[0]:
    return jnp.einsum('bli,hio->blho', x_BxLxHxI[:, :, 0], kernel_HxIxO)
  return jnp.einsum('blhi,hio->blho', x_BxLxHxI, kernel_HxIxO)


def init_each(
  key: jax.Array,
  shape: tuple[int, ...],
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> jax.Array:
  """Draws each head's matrix within Xavier's limits, HxIxO."""
  limit = (6 / (shape[1] + shape[2])) ** 0.5
  return jax.random.uniform(key, shape, dtype, -limit, limit)
