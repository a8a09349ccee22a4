"""What stands around a cell: norm, residual, MLP.

'residual':  x = x + cell(norm(x));  x = x + mlp(norm(x)) where F > 0
'plain':     x = cell(x), the published stack
'normed':    x = norm(x + norm(cell(x))), of a normed embedding
'renormed':  the same of x = norm(x), block by block

norm is RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization",
2019) without a scale, which the matmul after it can hold, or LayerNorm (Ba et
al., "Layer Normalization", 2016) with scale and bias, or 'standard', the same
without them. What is standard stays so: 'renormed' is 'normed' then.

With a small model.branch_scale the stack begins as the embedding alone: the
projections that end a branch start that much smaller (Zhang et al., "Fixup
Initialization: Residual Learning Without Normalization", 2019).

The MLP is gated, W_down (a(W_gate x) * W_up x) with a = silu or gelu for
'swiglu' and 'geglu' (Shazeer, "GLU Variants Improve Transformer", 2020), or
W_down a(W_up x) for 'gelu', 'relu' and 'gelu_tanh', which is gelu with a tanh
in place of the error function (Hendrycks and Gimpel, "Gaussian Error Linear
Units", 2016).

On a mesh, devices may share the heads of a cell and the columns of an MLP.
"""

import dataclasses
import functools

import flax.linen as nn
import jax
from jax import ad_checkpoint

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.models import remat
from rnn_jax.ops import precision
from rnn_jax.parallel import axes
from rnn_jax.parallel import rules as rules_lib
from rnn_jax.parallel import shares
from rnn_jax.parallel import tensor

ACTIVATIONS = {
  'swiglu': nn.silu,
  'geglu': functools.partial(nn.gelu, approximate=False),
  'gelu': functools.partial(nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(nn.gelu, approximate=True),
  'relu': nn.relu,
}
GATED = ('swiglu', 'geglu')
AROUND_SUM = ('normed', 'renormed')  # blocks with a norm around their sum
LETTERS = {
  'cell_norm/*': 'D',
  'sum_norm/*': 'D',
  'begin_norm/*': 'D',
  'mlp_norm/*': 'D',
  'mlp/up/kernel': 'DxF',
  'mlp/up/bias': 'F',
  'mlp/gate/kernel': 'DxF',
  'mlp/gate/bias': 'F',
  'mlp/down/kernel': 'FxD',
  'mlp/down/bias': 'D+F',
}


def dropout_keys(key, segment=0):
  """The rngs that switch dropout on: what `apply` takes.

  Masks that hold for a row's steps are the same in every segment of time.
  """
  segment = segment + axes.index('sequence')
  return {'dropout': jax.random.fold_in(key, segment), 'channels': key}


def drops(config):
  """Whether a Config drops anything while training."""
  model = config.model
  return max(model.dropout, model.token_dropout, config.cell.dropout) > 0


def dropout(config):
  """Dropout of a Model config, switched on by `dropout_keys`.

  Residual blocks drop a channel for all of a row's steps (Gal and Ghahramani,
  "A Theoretically Grounded Application of Dropout in Recurrent Neural
  Networks", 2016), or each number by itself, as plain ones always do.
  """
  if config.block == 'plain' or config.dropout_shape == 'elements':
    return nn.Dropout(config.dropout)
  return nn.Dropout(
    config.dropout, broadcast_dims=(-2,), rng_collection='channels'
  )


def norm(config, policy):
  """The norm before a cell, an MLP and the head; see the module's docstring."""
  if config.norm == 'layer':
    return nn.LayerNorm(epsilon=1e-5, dtype=policy.activations)
  if config.norm == 'standard':
    return nn.LayerNorm(
      epsilon=1e-5,
      use_bias=False,
      use_scale=False,
      dtype=policy.activations,
    )
  return nn.RMSNorm(dtype=policy.activations, use_scale=False)


class Mlp(nn.Module):
  """From D to F to D; see the module's docstring."""

  config: config_lib.Model
  policy: precision.Policy
  rules: rules_lib.Rules

  @nn.compact
  def __call__(self, x_BxLxD):
    config, activate = self.config, ACTIVATIONS[self.config.mlp]
    shares = self.rules.shares('F')
    width = config.mlp_width // shares
    x_BxLxD = tensor.enter(x_BxLxD) if shares > 1 else x_BxLxD
    hidden = self._dense(width, 'up')(x_BxLxD)
    if config.mlp in GATED:
      gate = self._dense(width, 'gate')(x_BxLxD)
      hidden = activate(gate) * hidden
    else:
      hidden = activate(hidden)
    self.sow('intermediates', remat.HIDDEN, hidden)  # where one asks for it
    hidden = ad_checkpoint.checkpoint_name(hidden, remat.HIDDEN)
    y = self._dense(x_BxLxD.shape[-1], 'down')(hidden)
    return tensor.leave(y) if shares > 1 else y

  def _dense(self, width, name):
    return nn.Dense(
      width,
      use_bias=self.config.biases,
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
    block = self.config.block
    if block != 'plain':
      self.cell_norm = norm(self.config, self.policy)
    if block in AROUND_SUM:
      self.sum_norm = norm(self.config, self.policy)
    if block == 'renormed':
      self.begin_norm = norm(self.config, self.policy)
    if self.config.mlp_width:
      self.mlp_norm = norm(self.config, self.policy)
      self.mlp = Mlp(self.config, self.policy, self.plan.rules)
    self.drop = dropout(self.config)

  def __call__(self, x_BxLxD, state, starts_BxL):
    """Returns (x_BxLxD, state)."""
    if self.config.block in AROUND_SUM:
      return self._run_normed(x_BxLxD, state, starts_BxL)
    plain = self.config.block == 'plain'
    read = x_BxLxD if plain else self.cell_norm(x_BxLxD)
    state, y = self._run_cell(state, read, starts_BxL)
    if plain:
      return self._dropped(y), state
    x = x_BxLxD + self._dropped(y)
    if self.config.mlp_width:
      x = x + self._dropped(self.mlp(self.mlp_norm(x)))
    return x, state

  def _run_normed(self, x_BxLxD, state, starts_BxL):
    x = x_BxLxD
    if self.config.block == 'renormed':
      x = self.begin_norm(x)
    state, y = self._run_cell(state, x, starts_BxL)
    return self.sum_norm(x + self._dropped(self.cell_norm(y))), state

  def _run_cell(self, state, x_BxLxD, starts_BxL):
    if head_shares(self) == 1:
      return self.cell(state, x_BxLxD, starts_BxL)
    state, y = self.cell(state, tensor.enter(x_BxLxD), starts_BxL)
    return state, tensor.leave(y)

  def _dropped(self, x):
    return self.drop(x, deterministic=not self.has_rng('dropout'))


def scaled(params, key, config):
  """Returns new parameters as the sizes of a Model config have them begin.

  With a kernel_scale, matrices are drawn anew from a normal distribution of
  that deviation (Radford et al., "Improving Language Understanding by
  Generative Pre-Training", 2018).
  """
  ends = {'output', 'down'}  # of branches: of a cell, of the MLP
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]

  def begin(path, x):
    names = [key.key for key in path]
    if names[-1] != 'kernel':
      return x
    if config.kernel_scale:
      own = jax.random.fold_in(key, paths.index(path))
      x = config.kernel_scale * jax.random.normal(own, x.shape, x.dtype)
    return x * config.branch_scale if ends & {*names} else x

  return jax.tree.map_with_path(begin, params)


def letters(cell):
  """The letters of a block's parameters around the cell of that name."""
  module = config_lib.load('cells', cell, 'model.cell')
  return LETTERS | {f'cell/{path}': x for path, x in module.LETTERS.items()}


def head_shares(block):
  """Among how many devices the heads of `block`'s cell are shared."""
  module = config_lib.load('cells', block.config.cell, 'model.cell')
  has_heads = any('H' in letters for letters in module.LETTERS.values())
  return block.plan.rules.shares('H') if has_heads else 1


def gathered(block, params):
  """A block's parameters as they are used, of those that this device keeps."""
  found = shares.letters(params, letters(block.config.cell))
  return shares.gather(params, found, block.plan.rules)


def make_cell(block, **overrides):
  """The cell that `block`'s config names, with this device's heads."""
  module = config_lib.load('cells', block.config.cell, 'model.cell')
  options = block.cell_config
  if (shares := head_shares(block)) > 1:
    heads = options.heads // shares
    options = dataclasses.replace(options, heads=heads)
  return module.Cell(
    options,
    block.config.width,
    block.plan,
    block.policy,
    **overrides,
  )
