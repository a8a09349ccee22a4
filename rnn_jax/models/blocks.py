"""What stands around a cell: norm, residual, MLP; and R of it in a stack.

'residual':  x = x + cell(norm(x));  x = x + mlp(norm(x)) where F > 0
'plain':     x = cell(x), the published stack

norm is RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization",
2019) without a scale, which the matmul after it can hold.

With a small model.branch_scale the stack begins as the embedding alone: the
projections that end a branch start that much smaller (Zhang et al., "Fixup
Initialization: Residual Learning Without Normalization", 2019).

The MLP is SwiGLU, W_down (silu(W_gate x) * W_up x) (Shazeer, "GLU Variants
Improve Transformer", 2020). Layers are one program run R times by `nn.scan`
over parameters stacked on a leading axis R, the states' too.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.ops import precision


def dropout_keys(key, segment=0):
  """The rngs that switch dropout on: what `apply` takes.

  Masks that hold for a row's steps are the same in every segment of time.
  """
  return {'dropout': jax.random.fold_in(key, segment), 'channels': key}


def drops(config):
  """Whether a Config drops anything while training."""
  model = config.model
  return max(model.dropout, model.token_dropout, config.cell.dropout) > 0


def dropout(config):
  """Dropout of a Model config, switched on by `dropout_keys`.

  Residual blocks drop a channel for all of a row's steps (Gal and Ghahramani,
  "A Theoretically Grounded Application of Dropout in Recurrent Neural
  Networks", 2016); plain ones each number by itself, as published.
  """
  if config.block == 'plain':
    return nn.Dropout(config.dropout)
  return nn.Dropout(
    config.dropout, broadcast_dims=(-2,), rng_collection='channels'
  )


def rms_norm(policy):
  """The norm before a cell, an MLP and the head; see the module's docstring."""
  return nn.RMSNorm(dtype=policy.activations, use_scale=False)


class Mlp(nn.Module):
  """SwiGLU from D to F to D."""

  mlp_width: int
  policy: precision.Policy

  @nn.compact
  def __call__(self, x_BxLxD):
    gate = self._dense(self.mlp_width, 'gate')(x_BxLxD)
    up = self._dense(self.mlp_width, 'up')(x_BxLxD)
    return self._dense(x_BxLxD.shape[-1], 'down')(nn.silu(gate) * up)

  def _dense(self, width, name):
    return nn.Dense(
      width,
      use_bias=False,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      name=name,
    )


class Block(nn.Module):
  """A cell in its surroundings, with the cell's state in and out."""

  config: config_lib.Model
  cell_config: object
  plan: base.Plan
  policy: precision.Policy

  def setup(self):
    self.cell = make_cell(self)
    if self.config.block == 'residual':
      self.cell_norm = rms_norm(self.policy)
    if self.config.mlp_width:
      self.mlp_norm = rms_norm(self.policy)
      self.mlp = Mlp(self.config.mlp_width, self.policy)
    self.drop = dropout(self.config)

  def __call__(self, x_BxLxD, state, starts_BxL):
    """Returns (x_BxLxD, state)."""
    plain = self.config.block == 'plain'
    read = x_BxLxD if plain else self.cell_norm(x_BxLxD)
    state, y = self.cell(state, read, starts_BxL)
    if plain:
      return self._dropped(y), state
    x = x_BxLxD + self._dropped(y)
    if self.config.mlp_width:
      x = x + self._dropped(self.mlp(self.mlp_norm(x)))
    return x, state

  def _dropped(self, x):
    return self.drop(x, deterministic=not self.has_rng('dropout'))


def scale_branches(params, scale):
  """Returns new parameters with the ends of all branches times `scale`."""
  ends = {'output', 'down'}  # of a cell, of the MLP

  def scaled(path, x):
    names = [key.key for key in path]
    return x * scale if names[-1] == 'kernel' and ends & {*names} else x

  return jax.tree.map_with_path(scaled, params)


def make_cell(block, **overrides):
  """The cell that `block`'s config names."""
  module = config_lib.load('cells', block.config.cell, 'model.cell')
  return module.Cell(
    block.cell_config,
    block.config.width,
    block.plan,
    block.policy,
    **overrides,
  )


class Stack(nn.Module):
  """R blocks. The state is (the first's or None, the stacked others')."""

  config: config_lib.Model
  cell_config: object
  plan: base.Plan
  policy: precision.Policy

  def setup(self):
    block = (self.config, self.cell_config, self.plan, self.policy)
    if self._first_differs:
      self.first = Block(*block)
    if self._scanned:
      self.blocks = nn.scan(
        Block,
        variable_axes={'params': 0},
        split_rngs={'params': True, 'dropout': True, 'channels': True},
        in_axes=(0, nn.broadcast),
        out_axes=0,
        length=self._scanned,
        unroll=self.config.unroll,
      )(*block)

  @property
  def _first_differs(self):
    inner = self.config.embedding_width or self.config.width
    return inner != self.config.width

  @property
  def _scanned(self):
    return self.config.layers - self._first_differs

  def init_state(self, B):
    """Zero states; the stacked ones are RxB... ."""
    one = make_cell(self, parent=None).init_state(B)
    stacked = jax.tree.map(
      lambda x: jnp.zeros((self._scanned, *x.shape), x.dtype), one
    )
    return (one if self._first_differs else None, stacked)

  def __call__(self, state, x_BxLxD, starts_BxL):
    """Returns (state, x_BxLxD)."""
    first, stacked = state
    x = x_BxLxD
    if self._first_differs:
      x, first = self.first(x, first, starts_BxL)
    if self._scanned:
      x, stacked = self.blocks(x, stacked, starts_BxL)
    return (first, stacked), x
