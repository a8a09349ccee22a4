"""What stands around a cell: norm, residual, MLP; and R of it in a stack.

'residual':  x = x + cell(norm(x));  x = x + mlp(norm(x)) where F > 0
'plain':     x = cell(x), the published stack

norm is RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization",
2019) without a scale, which the matmul after it can hold, or LayerNorm (Ba et
al., "Layer Normalization", 2016) with scale and bias.

With a small model.branch_scale the stack begins as the embedding alone: the
projections that end a branch start that much smaller (Zhang et al., "Fixup
Initialization: Residual Learning Without Normalization", 2019).

The MLP is gated, W_down (a(W_gate x) * W_up x) with a = silu or gelu for
'swiglu' and 'geglu' (Shazeer, "GLU Variants Improve Transformer", 2020), or
W_down a(W_up x) for 'gelu' and 'relu'. Layers are one program run R times by
`nn.scan` over parameters stacked on a leading axis R, the states' too.

Where the mesh's axis 'pipe' is cut in n, parameters and states are those of a
device's own R/n layers, and rows pass through `parallel/pipeline.gpipe`. What
the stack returns is then the last stage's, and zeros on the others: whoever
adds up losses of it drops those, where(stage == n - 1, loss, 0). Gradients of
what stands before the stack are the first stage's, behind it the last's, zeros
elsewhere: a sum over 'pipe' completes them.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import ad_checkpoint

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.models import remat
from rnn_jax.ops import precision
from rnn_jax.parallel import axes
from rnn_jax.parallel import pipeline

ACTIVATIONS = {
  'swiglu': nn.silu,
  'geglu': functools.partial(nn.gelu, approximate=False),
  'gelu': functools.partial(nn.gelu, approximate=False),
  'relu': nn.relu,
}
GATED = ('swiglu', 'geglu')


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
  return nn.RMSNorm(dtype=policy.activations, use_scale=False)


class Mlp(nn.Module):
  """From D to F to D; see the module's docstring."""

  config: config_lib.Model
  policy: precision.Policy

  @nn.compact
  def __call__(self, x_BxLxD):
    config, activate = self.config, ACTIVATIONS[self.config.mlp]
    hidden = self._dense(config.mlp_width, 'up')(x_BxLxD)
    if config.mlp in GATED:
      gate = self._dense(config.mlp_width, 'gate')(x_BxLxD)
      hidden = activate(gate) * hidden
    else:
      hidden = activate(hidden)
    hidden = ad_checkpoint.checkpoint_name(hidden, remat.HIDDEN)
    return self._dense(x_BxLxD.shape[-1], 'down')(hidden)

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
    if self.config.block == 'residual':
      self.cell_norm = norm(self.config, self.policy)
    if self.config.mlp_width:
      self.mlp_norm = norm(self.config, self.policy)
      self.mlp = Mlp(self.config, self.policy)
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


def stage(block: Block):
  """Returns the function that runs some layers: see `parallel/pipeline.py`.

  Its parameters and states are stacked over the layers, `extra` is starts_BxL
  or None, `key` the rngs of the rows. Layers fold them with their own number,
  so that masks do not depend on which stage a layer is in. It raises
  ValueError where plan.layers does not divide the layers.
  """
  plan = block.plan

  def layer(starts_BxL, keys, x, inputs):
    number, params, state = inputs
    keys = pipeline.fold(keys, number)
    return block.apply({'params': params}, x, state, starts_BxL, rngs=keys)

  def run(params, x_BxLxD, state, starts_BxL, keys):
    count = jax.tree.leaves(params)[0].shape[0]
    numbers = axes.index(pipeline.AXIS) * count + jnp.arange(count)
    unroll = min(block.config.unroll, plan.layers or count)
    over_layers = functools.partial(
      jax.lax.scan,
      functools.partial(layer, starts_BxL, keys),
      unroll=unroll,
    )
    inputs = numbers, params, state
    if not plan.layers:
      return over_layers(x_BxLxD, inputs)
    _check_groups(plan.layers, count)
    group = remat.function(over_layers, plan)
    x, new = jax.lax.scan(group, x_BxLxD, grouped(inputs, plan.layers))
    return x, jax.tree.map(lambda x, like: x.reshape(like.shape), new, state)

  return run


def grouped(tree, layers):
  """What is stacked over layers, over groups and the layers of each."""
  return jax.tree.map(lambda x: x.reshape(-1, layers, *x.shape[1:]), tree)


def _check_groups(layers, count):
  if count % layers:
    raise ValueError(
      f'remat.layers={layers}: a stage has {count} layers, '
      'give a number that divides them'
    )


class Stack(nn.Module):
  """R blocks. The state is (the first's or None, the stacked others')."""

  config: config_lib.Model
  cell_config: object
  plan: base.Plan
  policy: precision.Policy

  def setup(self):
    self._check_stages()
    if self._first_differs:
      self.first = Block(*self._fields)
    if self._scanned:
      # Parameters are drawn as if nothing was computed twice.
      group = 0 if self.is_initializing() else self.plan.layers
      self.blocks = self._stacked(group)(*self._fields)

  @property
  def _fields(self):
    return self.config, self.cell_config, self.plan, self.policy

  def _check_stages(self):
    if self._stages > 1 and self._first_differs:
      raise ValueError(
        f'model.embedding_width={self.config.embedding_width} with '
        f'{self._stages} stages: the first layer differs from the others and '
        'can be in no stage with them; give 0, or one stage'
      )
    if self.config.layers % self._stages:
      raise ValueError(
        f'model.layers={self.config.layers}: give a multiple of the '
        f'{self._stages} stages'
      )

  def _stacked(self, group):
    """The class of all scanned layers, in groups that remat keeps apart."""
    if not group:
      return self._scan(Block, self._scanned)
    if group == 1:
      return self._scan(remat.layers(Block, self.plan), self._scanned)
    inner = remat.layers(self._scan(Block, group), self.plan)
    outer = self._scan(inner, self._scanned // group)
    return nn.map_variables(outer, 'params', trans_in_fn=self._split)

  def _scan(self, layer, length):
    return nn.scan(
      layer,
      variable_axes={'params': 0},
      split_rngs={'params': True, 'dropout': True, 'channels': True},
      in_axes=(0, nn.broadcast),
      out_axes=0,
      length=length,
      unroll=min(self.config.unroll, length),
    )

  def _split(self, tree):
    return grouped(tree, self.plan.layers)

  @property
  def _first_differs(self):
    inner = self.config.embedding_width or self.config.width
    return inner != self.config.width

  @property
  def _scanned(self):
    """How many layers, of those that are here, are stacked."""
    return self.config.layers // self._stages - self._first_differs

  @property
  def _stages(self):
    whole = self.scope is not None and self.is_initializing()
    return 1 if whole else axes.size(pipeline.AXIS)

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
      x, stacked = self._run(x, stacked, starts_BxL)
    return (first, stacked), x

  def _run(self, x, stacked, starts_BxL):
    if self._stages > 1:
      return self._pipelined(x, stacked, starts_BxL)
    if self.plan.layers < 2 or self.is_initializing():
      return self.blocks(x, stacked, starts_BxL)
    x, new = self.blocks(x, self._split(stacked), starts_BxL)
    return x, jax.tree.map(lambda x, like: x.reshape(like.shape), new, stacked)

  def _pipelined(self, x, stacked, starts_BxL):
    names = ('dropout', 'channels')
    keys = {name: self.make_rng(name) for name in names if self.has_rng(name)}
    return pipeline.gpipe(
      stage(Block(*self._fields, parent=None)),
      self.variables['params']['blocks'],
      pipeline.Inputs(x, stacked, starts_BxL, keys),
      pipeline.Options(self.plan.micro_batches),
    )
