"""The block around a cell: norm, residual connection, MLP.

'residual':  x = x + cell(norm(x));  x = x + mlp(norm(x)) where F > 0
'plain':     x = cell(x), the published stack
'normed':    x = norm(x + norm(cell(x))), after a normed embedding
'renormed':  the same with x = norm(x) at the start of every block

norm is RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization",
2019), or LayerNorm (Ba et al., "Layer Normalization", 2016) with scale and
bias, or 'standard', the same without them. RMSNorm has no scale, which the next
matmul can learn, unless model.norm_scale asks for one, as pretrained models
have; with model.norm_plus_one it is 1 + the parameter. 'standard' is
idempotent: 'renormed' equals 'normed' then.

With a small model.branch_scale the initial stack is close to the identity: the
last projection of each branch starts that much smaller (Zhang et al., "Fixup
Initialization: Residual Learning Without Normalization", 2019).

The MLP is mlp.py's, or several of them (experts.py).

On a mesh, the heads of a cell may be sharded.
"""

from typing import Any

import flax.linen as nn
import jax

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import norms
from rnn_jax.models import experts
from rnn_jax.models import mlp
from rnn_jax.ops import devices
from rnn_jax.ops import precision

PyTree = Any


BLOCKS = ('residual', 'plain', 'normed', 'renormed')
NORMS = ('rms', 'layer', 'standard')
AROUND_SUM = ('normed', 'renormed')  # blocks with a norm around their sum
LOGICAL_AXES = {
  'cell_norm/*': 'D',
  'sum_norm/*': 'D',
  'input_norm/*': 'D',
  'mlp_norm/*': 'D',
  **mlp.LOGICAL_AXES,
  **experts.LOGICAL_AXES,
}


def dropout_keys(
  key: jax.Array, segment: int | jax.Array = 0
) -> dict[str, jax.Array]:
  """Returns the `rngs` of `apply` that switch dropout on.

  Args:
    key: a PRNG key.
    segment: the number of the segment of time. Masks that are constant over
      time are the same in every segment.
  """
  segment = segment + devices.current().time_shard
  return {'dropout': jax.random.fold_in(key, segment), 'channels': key}


def drops(config: config_lib.Config) -> bool:
  """Returns whether training with this config uses dropout."""
  model = config.model
  return max(model.dropout, model.token_dropout, config.cell.dropout) > 0


def dropout(config: config_lib.Model) -> nn.Dropout:
  """Returns the dropout of a Model config, switched on by `dropout_keys`.

  Plain blocks drop single numbers. Others do, or drop a channel for all steps
  of a row (Gal and Ghahramani, "A Theoretically Grounded Application of Dropout
  in Recurrent Neural Networks", 2016).
  """
  if config.block == 'plain' or config.dropout_shape == 'elements':
    return nn.Dropout(config.dropout)
  return nn.Dropout(
    config.dropout, broadcast_dims=(-2,), rng_collection='channels'
  )


def norm(config: config_lib.Model, policy: precision.Policy) -> nn.Module:
  """Returns the norm that a config chooses; see the module's docstring."""
  dtype = policy.activations
  if config.norm == 'rms':
    epsilon = config.norm_epsilon or 1e-6
    if config.norm_plus_one:
      return norms.PlusOne(epsilon, dtype)
    return nn.RMSNorm(epsilon, dtype=dtype, use_scale=config.norm_scale)
  affine = config.norm == 'layer'
  epsilon = config.norm_epsilon or 1e-5
  return nn.LayerNorm(epsilon, dtype=dtype, use_bias=affine, use_scale=affine)


class Block(nn.Module):
  """A cell with norms, residual connection and MLP."""

  config: config_lib.Model
  cell_config: base.Config
  plan: base.Plan
  policy: precision.Policy

  def setup(self) -> None:
    self.cell = make_cell(self)
    block = self.config.block
    if block != 'plain':
      self.cell_norm = norm(self.config, self.policy)
    if block in AROUND_SUM:
      self.sum_norm = norm(self.config, self.policy)
    if block == 'renormed':
      self.input_norm = norm(self.config, self.policy)
    if self.config.mlp_width:
      self.mlp_norm = norm(self.config, self.policy)
      if self.config.experts.count:
        self.experts = experts.Experts(self.config, self.policy)
      else:
        self.mlp = mlp.Mlp(self.config, self.policy)
    self.drop = dropout(self.config)

  def __call__(
    self, x_BxLxD: jax.Array, state: PyTree, starts_BxL: jax.Array | None
  ) -> tuple[jax.Array, PyTree]:
    """Returns (x_BxLxD, state), of the cell's state before and after."""
    if self.config.block in AROUND_SUM:
      return self._run_normed(x_BxLxD, state, starts_BxL)
    plain = self.config.block == 'plain'
    x = x_BxLxD if plain else self.cell_norm(x_BxLxD)
    state, y = self._run_cell(state, x, starts_BxL)
    if plain:
      return self._dropped(y), state
    x = x_BxLxD + self._dropped(y)
    if self.config.mlp_width:
      inner = self.experts if self.config.experts.count else self.mlp
      x = x + self._dropped(inner(self.mlp_norm(x)))
    return x, state

  def _run_normed(self, x_BxLxD, state, starts_BxL):
    x = x_BxLxD
    if self.config.block == 'renormed':
      x = self.input_norm(x)
    state, y = self._run_cell(state, x, starts_BxL)
    return self.sum_norm(x + self._dropped(self.cell_norm(y))), state

  def _run_cell(self, state, x_BxLxD, starts_BxL):
    if head_shards(self) == 1:
      return self.cell(state, x_BxLxD, starts_BxL)
    x_BxLxD = devices.current().tp_copy(x_BxLxD)
    state, y = self.cell(state, x_BxLxD, starts_BxL)
    return state, devices.current().tp_reduce(y)

  def _dropped(self, x):
    return self.drop(x, deterministic=not self.has_rng('dropout'))


def scaled(params: PyTree, key: jax.Array, config: config_lib.Model) -> PyTree:
  """Returns new parameters with the initial scales of a Model config.

  With a kernel_scale, matrices are drawn again from a normal distribution of
  that standard deviation (Radford et al., "Improving Language Understanding by
  Generative Pre-Training", 2018).

  Args:
    params: as `init` returns them.
    key: a PRNG key for the kernel_scale.
    config: the Model config.
  """
  last = {'output', 'down'}  # projections of a branch, of a cell and the MLP
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]

  def scale(path, x):
    names = [key.key for key in path]
    if names[-1] != 'kernel':
      return x
    if config.kernel_scale:
      own = jax.random.fold_in(key, paths.index(path))
      x = config.kernel_scale * jax.random.normal(own, x.shape, x.dtype)
    return x * config.branch_scale if last & {*names} else x

  return jax.tree.map_with_path(scale, params)


def logical_axes(cell: str) -> dict[str, str]:
  """Returns the logical axes of a block's parameters by path.

  `cell` is the name of its cell.
  """
  module = config_lib.load('cells', cell, 'model.cell')
  return LOGICAL_AXES | {
    f'cell/{path}': x for path, x in module.LOGICAL_AXES.items()
  }


def head_shards(block: nn.Module) -> int:
  """Returns over how many devices the heads of a block's cell are sharded."""
  module = config_lib.load('cells', block.config.cell, 'model.cell')
  has_heads = any('H' in axes for axes in module.LOGICAL_AXES.values())
  return devices.current().shards('H') if has_heads else 1


def make_cell(block: nn.Module, **overrides: Any) -> base.Cell:
  """Returns the cell that a block's config names, with this device's heads.

  `overrides` are more arguments of the linen module.
  """
  module = config_lib.load('cells', block.config.cell, 'model.cell')
  options = block.cell_config
  if (shards := head_shards(block)) > 1:
    options = options.of_shard(shards)
  return module.Cell(
    options,
    block.config.width,
    block.plan,
    block.policy,
    **overrides,
  )
