"""The block around a cell: norm, residual connection, MLP.

'residual':  x = x + m cell(norm(x));  x = x + m n mlp(norm(x)) where F > 0
'plain':     x = cell(x), the published stack
'normed':    x = norm(x + norm(cell(x))), after a normed embedding
'renormed':  the same with x = norm(x) at the start of every block

norm is RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization",
2019), or LayerNorm (Ba et al., "Layer Normalization", 2016) with scale and
bias, or 'standard', the same without them. RMSNorm has no scale, which the next
matmul can learn, unless model.norm_scale asks for one, as pretrained models
have; with model.norm_plus_one it is 1 + the parameter. 'standard' is
idempotent: 'renormed' equals 'normed' then. m is
model.residual_multiplier, n model.mlp_multiplier.

With a small model.branch_scale the initial stack is close to the identity: the
last projection of each branch starts that much smaller (Zhang et al., "Fixup
Initialization: Residual Learning Without Normalization", 2019).

The MLP is mlp.py's, or several of them (experts.py). A block's state is its
cell's, or State where the MLP has one too.

A cell may have arrays that go from layer to layer next to x (`Cell.beside`), as
the values of the first layer do. Where a model has such cells, x is a Stream.
Only x is normed and added; each cell reads and returns what its kind declares.

With model.bidirectional a block has two cells of half its width. `cell` reads a
document from its first step, `backward_cell` from its last; in the place of
cell(x) is, as in torch.nn.LSTM(bidirectional=True),

    [cell(x); reverse(backward_cell(reverse(x)))]        ops/reversal.py

Such a block has no state, since its outputs depend on the whole document.

On a mesh, the heads of a cell may be sharded.
"""

from typing import Any
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import norms
from rnn_jax.models import experts
from rnn_jax.models import mlp
from rnn_jax.ops import devices
from rnn_jax.ops import precision
from rnn_jax.ops import reversal

PyTree = Any


BLOCKS = ('residual', 'plain', 'normed', 'renormed')
NORMS = ('rms', 'layer', 'standard')
ADDED = 'added'  # name in Stream.beside of what only the next cell reads
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


def drops_inputs(config: config_lib.Model) -> bool:
  """Returns whether blocks drop what they read; others what they add.

  What reads the last block's outputs drops them itself: a maximum over time of
  dropped numbers would be another one than that of evaluation.
  """
  return config.block == 'plain'


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


class State(NamedTuple):
  """The state of a block whose MLP has one."""

  cell: PyTree
  mlp_Bx1xD: Any


class Stream(NamedTuple):
  """What goes from layer to layer, where that isn't only x."""

  x_BxLxD: jax.Array
  # By the name of the cell that declares it; that of both cells as a pair, the
  # backward one's in the order in which it reads.
  beside: dict[str, PyTree]


class Module(nn.Module):
  """Base of a block, a period and a stack: what they are made from."""

  config: config_lib.Model
  cell_config: Any  # base.Config, or config.pattern.Options of `model.cells`
  plan: base.Plan
  policy: precision.Policy


class Block(Module):
  """A cell with norms, residual connection and MLP."""

  uses_shared: ClassVar[bool] = False  # it takes a block that layers share

  def setup(self) -> None:
    self.cell = make_cell(self)
    if self.config.bidirectional:
      self.backward_cell = make_cell(self)
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
    if mlp.shifts(self.config):
      self.mlp_shift = mlp.TokenShift()
    self.drop = dropout(self.config)

  def __call__(
    self,
    stream: jax.Array | Stream,
    state: PyTree,
    starts_BxL: jax.Array | None,
  ) -> tuple[jax.Array | Stream, PyTree]:
    """Returns (stream, state), of the block's state before and after.

    `stream` is x_BxLxD, or a Stream.
    """
    if mlp.shifts(self.config):
      stream, of_cell = self._add_cell(stream, state.cell, starts_BxL)
      stream, of_mlp = self._add_mlp(stream, state.mlp_Bx1xD, starts_BxL)
      return stream, State(of_cell, of_mlp)
    stream, state = self._add_cell(stream, state, starts_BxL)
    if self.config.mlp_width:
      stream, _ = self._add_mlp(stream, None, starts_BxL)
    return stream, state

  def _add_cell(self, stream, state, starts_BxL):
    block, x = self.config.block, x_of(stream)
    if block == 'renormed':
      x = self.input_norm(x)
    if block == 'residual':
      read = self.cell_norm(_with_added(x, stream))
    else:
      read = self._dropped(x) if drops_inputs(self.config) else x
    state, y, stream = self._run_cell(state, read, stream, starts_BxL)
    if block == 'residual':
      y = x + _scaled(self._dropped(y), self.config.residual_multiplier)
    elif block != 'plain':
      y = self.sum_norm(x + self._dropped(self.cell_norm(y)))
    return with_x(stream, y), state

  def _add_mlp(self, stream, state, starts_BxL):
    x = x_of(stream)
    read = self.mlp_norm(x)
    if state is not None:
      state, read = self.mlp_shift(state, read, starts_BxL)
    inner = self.experts if self.config.experts.count else self.mlp
    multiplier = self.config.residual_multiplier * self.config.mlp_multiplier
    y = _scaled(self._dropped(inner(read)), multiplier)
    return with_x(stream, x + y), state

  def _run_cell(self, state, x_BxLxD, stream, starts_BxL):
    """Returns (state, y_BxLxD, the stream with what the cell put beside)."""
    shards, name = head_shards(self), self.config.cell
    x = devices.current().tp_copy(x_BxLxD) if shards > 1 else x_BxLxD
    passes = isinstance(stream, Stream) and name in stream.beside
    read = (x, stream.beside[name]) if passes else x
    if self.config.bidirectional:
      y = self._run_both(read, passes, starts_BxL)
    else:
      state, y = self.cell(state, read, starts_BxL)
    if passes:
      y, beside = y
      stream = stream._replace(beside=stream.beside | {name: beside})
    y = devices.current().tp_reduce(y) if shards > 1 else y
    return state, y, stream

  def _run_both(self, read, passes, starts_BxL):
    """Returns y_BxLxD of both cells; of pairs, the pair that they put beside.

    `read` is x_BxLxD, or (x_BxLxD, a pair of what is beside it).
    """
    x, (first, second) = read if passes else (read, (None, None))
    behind = reversal.reverse(x, starts_BxL)
    zeros = make_cell(self, parent=None).init_state(x.shape[0])
    _, y = self.cell(zeros, (x, first) if passes else x, starts_BxL)
    _, back = self.backward_cell(
      zeros, (behind, second) if passes else behind, starts_BxL
    )
    if passes:
      (y, first), (back, second) = y, back
    y = jnp.concatenate([y, reversal.reverse(back, starts_BxL)], -1)
    return (y, (first, second)) if passes else y

  def _dropped(self, x):
    return self.drop(x, deterministic=not self.has_rng('dropout'))


def _with_added(x, stream):
  """Returns what the cell reads: x, and what is added for it alone."""
  beside = stream.beside if isinstance(stream, Stream) else {}
  return x + beside[ADDED] if ADDED in beside else x


def _scaled(y, multiplier):
  return y if multiplier == 1 else multiplier * y


def x_of(stream: jax.Array | Stream) -> jax.Array:
  """Returns the x_BxLxD of a stream."""
  return stream.x_BxLxD if isinstance(stream, Stream) else stream


def with_x(
  stream: jax.Array | Stream, x_BxLxD: jax.Array
) -> jax.Array | Stream:
  """Returns a stream with another x."""
  if isinstance(stream, Stream):
    return stream._replace(x_BxLxD=x_BxLxD)
  return x_BxLxD


def init_state(block: nn.Module, B: int) -> PyTree:
  """Returns the state of a block before a document, for B rows.

  Needs no parameters, as `state_axes`.
  """
  state = None
  if not block.config.bidirectional:
    state = make_cell(block, parent=None).init_state(B)
  if not mlp.shifts(block.config):
    return state
  return State(state, jnp.zeros((B, 1, block.config.width)))


def state_axes(block: nn.Module) -> PyTree:
  """Returns the logical axes of that state, a tree like it."""
  axes = None
  if not block.config.bidirectional:
    axes = make_cell(block, parent=None).state_axes()
  return State(axes, 'B') if mlp.shifts(block.config) else axes


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
    f'{name}/{path}': x
    for path, x in module.LOGICAL_AXES.items()
    for name in ('cell', 'backward_cell')
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
    block.config.cell_width,
    block.plan,
    block.policy,
    block.config.width if block.config.bidirectional else 0,
    **overrides,
  )
