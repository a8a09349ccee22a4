"""A classifier of pictures: patches, R blocks, a head.

    x = [token;] W patches + b  + positions
    logits = W_head norm(pool(stack(x))) + b

Patches are squares of pixels, row by row, that do not overlap: W is a
convolution with a stride of its own size. The pool is the mean over the row's
steps, or the step of a learnt token in front of them. The stack's cell and
block say which model it is:

    Vision-BDH v1    cell 'bdh', block 'normed', norm 'standard', shared layers
    Vision-BDH v2    the same with block 'renormed': the same function
    ViT              cell 'attention', block 'residual', norm 'layer', an MLP

both with sees='row'; with any other cell the row is read from its first patch
to its last. Shapes: images BxHxWxC, bytes; rows BxLxD; logits BxC in float32.
Sources: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021; Kosowski et
al., "The Dragon Hatchling", 2025.
"""

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

LETTERS = {
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
  cell_config: object
  vision: config_lib.Vision
  image: config_lib.Image
  classes: int
  plan: base.Plan = base.Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def setup(self):
    config, policy = self.config, self.policy
    self.patches = nn.Dense(
      config.width, dtype=policy.activations, dot_general=policy.dot_general
    )
    if self._has_token:
      begin = nn.initializers.normal(0.02)
      self.token = self.param('token', begin, (config.width,))
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
  def steps(self):
    """How many a row has."""
    return (self.image.size // self.vision.patch) ** 2 + self._has_token

  @nn.nowrap
  def letters(self):
    """The letters of the parameters by their path."""
    found = stack.letters(self.config.cell)
    return LETTERS | {f'stack/{path}': x for path, x in found.items()}

  def __call__(self, image_BxHxWxC):
    """Returns logits_BxC."""
    x_BxLxD = self.read(image_BxHxWxC)
    state = self.stack.init_state(x_BxLxD.shape[0])
    _, x_BxLxD = self.stack(state, x_BxLxD, None)
    if self._has_token:
      pooled_BxD = x_BxLxD[:, 0]
    else:
      pooled_BxD = jnp.mean(x_BxLxD.astype(jnp.float32), 1)
    return self.head(self.norm(pooled_BxD).astype(jnp.float32))

  def read(self, image_BxHxWxC):
    """Returns what enters the first block, BxLxD."""
    x = self.patches(cut(self._scaled(image_BxHxWxC), self.vision.patch))
    if self._has_token:
      token = self.token.astype(x.dtype)[None, None]
      token = jnp.broadcast_to(token, (x.shape[0], 1, x.shape[-1]))
      x = jnp.concatenate([token, x], 1)
    if self.config.positions != 'none':
      _, x = self.positions(self.positions.init_state(x.shape[0]), x)
    if self.config.block == 'normed':
      x = self.norm(x)
    return self.drop(x, deterministic=not self.has_rng('dropout'))

  def _scaled(self, image_BxHxWxC):
    """Bytes as numbers about 0, of about unit size."""
    mean, deviation = (
      np.array(x, np.float32).reshape(1, 1, 1, -1)
      for x in (self.image.mean, self.image.deviation)
    )
    x = (image_BxHxWxC.astype(jnp.float32) / 255 - mean) / deviation
    return x.astype(self.policy.activations)


def cut(image_BxHxWxC: jax.Array, patch: int) -> jax.Array:
  """Returns the patches of images row by row, BxLx(patch patch C).

  Raises:
    ValueError: patches don't cover the image.
  """
  B, height, width, channels = image_BxHxWxC.shape
  if height % patch or width % patch:
    raise ValueError(
      f'patch={patch}: it must divide images of {height} x {width} pixels'
    )
  rows, columns = height // patch, width // patch
  x = image_BxHxWxC.reshape(B, rows, patch, columns, patch, channels)
  return x.swapaxes(2, 3).reshape(B, rows * columns, -1)


def from_config(config):
  """The classifier that a Config describes.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  return Classifier(
    config.model,
    config.cell,
    config.vision,
    config.data.image,
    len(config.data.classes),
    language_model.plan(config),
    language_model.policy(config.train),
  )
