"""Norms whose scale is stored less one.

    y = x / sqrt(mean(x^2) + epsilon) * (1 + s)

s starts at 0, so that weight decay draws the scale to 1.
Source: Gemma Team, "Gemma: Open Models Based on Gemini Research and
Technology", 2024, whose code has it.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp


class PlusOne(nn.Module):
  """RMSNorm whose scale is 1 + a parameter, which starts at 0."""

  epsilon: float
  dtype: jax.typing.DTypeLike  # of the result

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    scale = self.param('scale', nn.initializers.zeros, x.shape[-1:])
    norm = nn.RMSNorm(self.epsilon, dtype=jnp.float32, use_scale=False)
    scale = (1 + scale).reshape(*[1] * (x.ndim - 1), -1)
    return (norm(x) * scale).astype(self.dtype)
