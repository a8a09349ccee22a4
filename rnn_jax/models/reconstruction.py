"""A text from one step's features: an autoencoder, whose code is the last x.

    y_t = d(d(x_last + e(t)))          d(x) = gelu(W norm(x) + b)
    z_t = W_head norm(y_t) + b

x_last are the last block's outputs at the last step of a document, e(t)
sinusoids of the step in it. Whatever z_t says of step t, x_last holds.
Source: Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures",
2024.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.models import positions
from rnn_jax.ops import reversal

PyTree = Any
LAYERS = 2
LOGICAL_AXES = {
  f'decoder_{n}/{name}': axes
  for n in range(LAYERS)
  for name, axes in (('kernel', 'Dx_'), ('bias', '_'))
} | {f'decoder_norm_{n}/*': 'D' for n in range(LAYERS)}


class Reconstructor(language_model.LanguageModel):
  """See the module's docstring; build it with `from_config`."""

  def setup(self) -> None:
    super().setup()
    width = self.config.width
    self.decoder = [
      nn.Dense(
        width,
        dtype=self.policy.activations,
        dot_general=self.policy.dot_general,
      )
      for _ in range(LAYERS)
    ]
    self.decoder_norm = [
      blocks.norm(self.config, self.policy) for _ in range(LAYERS)
    ]

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    return super().logical_axes() | LOGICAL_AXES

  def hidden(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
    added_BxLxD: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, y_BxLxD)."""
    state, x_BxLxD = super().hidden(state, tokens_BxL, starts_BxL, added_BxLxD)
    steps_BxL = _steps(tokens_BxL.shape, starts_BxL)
    e_BxLxD = positions.sinusoids(steps_BxL, self.config.width)
    y = reversal.from_last(x_BxLxD, starts_BxL) + e_BxLxD.astype(x_BxLxD.dtype)
    for dense, norm in zip(self.decoder, self.decoder_norm, strict=True):
      y = nn.gelu(dense(norm(y)), approximate=False)
    return state, y


def _steps(shape, starts_BxL):
  """Returns the step in its document of each step, BxL."""
  steps_BxL = jnp.broadcast_to(jnp.arange(shape[1])[None], shape)
  if starts_BxL is None:
    return steps_BxL
  return steps_BxL - reversal.first_steps(starts_BxL)


def from_config(config: config_lib.Config, vocabulary: int) -> Reconstructor:
  """Returns the model of a config, for a vocabulary of that size.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  model = language_model.from_config(config, vocabulary)
  return Reconstructor(
    model.config, model.cell_config, vocabulary, model.plan, model.policy
  )
