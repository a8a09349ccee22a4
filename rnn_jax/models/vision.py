"""An image classifier: patches, R blocks, a head.

    x = [token;] W patches + b  + positions
    logits = W_head norm(pool(stack(x))) + b

Patches are adjacent squares of pixels, row by row: W is a convolution whose
stride is its size. The pool is the mean over the row's steps, or the step of a
learned token before them. The stack's cell and block define the model:

    Vision-BDH v1    cell 'bdh', block 'normed', norm 'standard', shared layers
    Vision-BDH v2    the same with block 'renormed': the same function
    ViT              cell 'attention', block 'residual', norm 'layer', an MLP

all with sees='row'; any other cell reads the row from its first patch to its
last. Shapes: images BxHxWxC, bytes; rows BxLxD; logits BxC in float32.
Sources: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021; Kosowski et
al., "The Dragon Hatchling", 2025.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.models import positions
from rnn_jax.models import stack
from rnn_jax.ops import precision

LOGICAL_AXES = {
  'patches/kernel': '_xD',
  'patches/bias': 'D',
  'token': 'D',
  'positions/table/embedding': '_xD',
  'norm/*': 'D',
  'head/kernel': 'Dx_',
  'head/bias': '_',
}


class Classifier(nn.Module):
  """See the module's docstring; build it with `from_config`."""

  config: config_lib.Model
  cell_config: Any
  vision: config_lib.Vision
  image: config_lib.Image
  classes: int
  plan: base.Plan = base.Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def setup(self) -> None:
    config, policy = self.config, self.policy
    self.patches = nn.Dense(
      config.width, dtype=policy.activations, dot_general=policy.dot_general
    )
    if self._has_token:
      init = nn.initializers.normal(0.02)
      self.token = self.param('token', init, (config.width,))
    if config.positions != 'none':
      self.positions = positions.Positions(
        config.positions, config.width, self.steps
      )
    self.stack = stack.Stack(config, self.cell_config, self.plan, policy)
    self.norm = blocks.norm(config, policy)
    self.head = nn.Dense(self.classes)
    self.drop = blocks.dropout(config)

  @property
  def _has_token(self):
    return self.vision.pooling == 'token'

  @property
  def steps(self) -> int:
    """The number of steps in a row."""
    return (self.image.size // self.vision.patch) ** 2 + self._has_token

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    axes = stack.logical_axes(self.config)
    return LOGICAL_AXES | {f'stack/{path}': x for path, x in axes.items()}

  def __call__(self, image_BxHxWxC: jax.Array) -> jax.Array:
    """Returns logits_BxC."""
    return self.head(self.pooled(image_BxHxWxC))

  def pooled(self, image_BxHxWxC: jax.Array) -> jax.Array:
    """Returns the head's inputs BxD, float32: the pooled and normed row."""
    x_BxLxD = self.read(image_BxHxWxC)
    state = self.stack.init_state(x_BxLxD.shape[0])
    _, x_BxLxD = self.stack(state, x_BxLxD, None)
    if self._has_token:
      pooled_BxD = x_BxLxD[:, 0]
    else:
      pooled_BxD = jnp.mean(x_BxLxD.astype(jnp.float32), 1)
    return self.norm(pooled_BxD).astype(jnp.float32)

  def read(self, image_BxHxWxC: jax.Array) -> jax.Array:
    """Returns the first block's inputs, BxLxD."""
    patches = split(self._scaled(image_BxHxWxC), self.vision.patch)
    x = self.patches(patches)
    if self._has_token:
      token = self.token.astype(x.dtype)[None, None]
      token = jnp.broadcast_to(token, (x.shape[0], 1, x.shape[-1]))
      x = jnp.concatenate([token, x], 1)
    if self.config.positions != 'none':
      _, x = self.positions(self.positions.init_state(x.shape[0]), x)
    if self.config.block == 'normed':
      x = self.norm(x)
    if blocks.drops_inputs(self.config):
      return x
    return self.drop(x, deterministic=not self.has_rng('dropout'))

  def _scaled(self, image_BxHxWxC):
    """Returns bytes normalized to a mean of 0 and a standard deviation of 1."""
    mean, std = (
      np.array(x, np.float32).reshape(1, 1, 1, -1)
      for x in (self.image.mean, self.image.std)
    )
    x = (image_BxHxWxC.astype(jnp.float32) / 255 - mean) / std
    return x.astype(self.policy.activations)


def split(image_BxHxWxC: jax.Array, patch: int) -> jax.Array:
  """Returns the patches of images row by row, BxLx(patch patch C).

  Raises:
    ValueError: the patch doesn't divide the image.
  """
  B, height, width, channels = image_BxHxWxC.shape
  if height % patch or width % patch:
    raise ValueError(
      f'patch={patch}: it must divide images of {height} x {width} pixels'
    )
  rows, columns = height // patch, width // patch
  x = image_BxHxWxC.reshape(B, rows, patch, columns, patch, channels)
  return x.swapaxes(2, 3).reshape(B, rows * columns, -1)


def from_config(config: config_lib.Config) -> Classifier:
  """Returns the classifier of a config.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  data: Any = config.data  # with the keys of layout 'images'
  return Classifier(
    config.model,
    config.cell,
    config.vision,
    data.image,
    len(config.data.classes),
    language_model.plan(config),
    language_model.policy(config),
  )
