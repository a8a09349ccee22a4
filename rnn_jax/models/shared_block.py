"""A block of attention and an MLP that several layers share.

Before its cell, layer i of model.shared_block.layers reads the stack's inputs
e once more:

    h = norm(attention(norm([x; e])))
    t = T_i W_down (a((W_gate + A_i B_i) h) * (W_up + C_i B_i) h)
    x = x + cell(norm(x + t))

Attention is 2 D wide inside, with heads of K = 2 D / H channels and scores
(K / 2)^-0.5 q . k; its output is D wide. There are no residuals within. All but
T_i and the changes A_i B_i and C_i B_i of low rank is shared: layers take
`count` such blocks in turn, and a gradient is the sum over their layers. With
`attention_adapters` q, k and v have changes of low rank as well. Each layer has
a state of attention of its own.
Source: Glorioso et al., "The Zamba2 Suite: Technical Report", 2024.
"""

from collections.abc import Callable
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import attention as attention_cell
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import mlp as mlp_lib
from rnn_jax.ops import precision

PyTree = Any
INPUTS = 'shared_block'  # name of e in blocks.Stream.beside
SHARED_AXES = {  # logical axes of a shared block's parameters by path
  'input_norm/*': '_',
  'mlp_norm/*': 'D',
  'attention/projection/kernel': 'Dx_',
  'attention/output/kernel': '_xD',
  'gate_up/kernel': 'Dx_',
  'down/kernel': '_xD',
}
USE_AXES = {  # of a layer's own
  'linear/kernel': 'Dx_',
  **{
    f'{name}_adapter/{part}/kernel': axes
    for name in ('query', 'key', 'value', 'mlp')
    for part, axes in {'reduce': 'Dx_', 'expand': '_x_'}.items()
  },
}


class State(NamedTuple):
  """The state of a layer that uses a shared block."""

  block: PyTree
  attention: PyTree


class _Attention(attention_cell.Cell):
  """Attention that reads (x, what is added to its projection or None)."""

  def project(self, read: PyTree) -> attention_cell.Projected:
    x_BxLxD, change = read
    projected = self.projection(x_BxLxD)
    return self.parts(projected if change is None else projected + change)


def _attention(module, **overrides):
  """Returns the attention of a shared block, as of `Shared`."""
  width, own = module.config.width, module.config.shared_block
  K = own.head_width(width)
  options = attention_cell.Config(
    heads=own.heads,
    head_width=K,
    kv_heads=own.kv_heads,
    window=own.window,
    rotary=own.rotary,
    rotary_scaling=own.rotary_scaling,
    score_scale=(K / 2) ** -0.5,
  )
  return _Attention(options, width, module.plan, module.policy, **overrides)


class Shared(nn.Module):
  """What layers share; see the module's docstring."""

  config: config_lib.Model
  plan: base.Plan
  policy: precision.Policy

  def setup(self) -> None:
    own = self.config.shared_block
    self.input_norm = blocks.norm(self.config, self.policy)
    self.attention = _attention(self)
    self.mlp_norm = blocks.norm(self.config, self.policy)
    self.gate_up = _dense(2 * own.mlp_width, self.policy)
    self.down = _dense(self.config.width, self.policy)

  def __call__(
    self,
    state: PyTree,
    inputs: tuple[jax.Array, jax.Array],
    starts_BxL: jax.Array | None,
    changes: 'Changes',
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, y_BxLxD), which a layer's T is to multiply.

    Args:
      state: of attention.
      inputs: x_BxLxD and e_BxLxD.
      starts_BxL: nonzero where a document begins, or None.
      changes: of the layer.
    """
    read = self.input_norm(jnp.concatenate(inputs, -1))
    change = changes.attention(read) if changes.attention else None
    state, y = self.attention(state, (read, change), starts_BxL)
    y = self.mlp_norm(y)
    parts = jnp.split(self.gate_up(y) + changes.mlp(y), 2, -1)
    units = dict(zip(('gate', 'up'), parts, strict=True))
    gated = self.config.of_shared_mlp()
    return state, self.down(mlp_lib.hidden(gated, units.__getitem__))


class Changes(NamedTuple):
  """What a layer adds to the products of a shared block with what they read."""

  attention: Callable[[jax.Array], jax.Array] | None
  mlp: Callable[[jax.Array], jax.Array]


class LowRank(nn.Module):
  """A B x, of two matrices whose inner width is the rank."""

  rank: int
  width: int
  policy: precision.Policy

  def setup(self) -> None:
    self.reduce = _dense(self.rank, self.policy)
    self.expand = _dense(self.width, self.policy)

  def __call__(self, x: jax.Array) -> jax.Array:
    return self.expand(self.reduce(x))


class Block(blocks.Block):
  """A block that uses a shared one."""

  uses_shared: ClassVar[bool] = True

  def setup(self) -> None:
    super().setup()
    own = self.config.shared_block
    self.linear = _dense(self.config.width, self.policy)
    self.mlp_adapter = self._low_rank(2 * own.mlp_width)
    if own.attention_adapters:
      K = own.head_width(self.config.width)
      self.query_adapter = self._low_rank(own.heads * K)
      self.key_adapter = self._low_rank(self._groups * K)
      self.value_adapter = self._low_rank(self._groups * K)

  def _low_rank(self, width):
    rank = self.config.shared_block.adapter_rank
    return LowRank(rank, width, self.policy)

  @property
  def _groups(self):
    own = self.config.shared_block
    return own.kv_heads or own.heads

  def _attention_change(self, x_BxLxD):
    """Returns the change of the projection, group by group as that has it."""
    adapters = self.query_adapter, self.key_adapter, self.value_adapter
    shape = *x_BxLxD.shape[:2], self._groups, -1
    parts = [adapter(x_BxLxD).reshape(shape) for adapter in adapters]
    return jnp.concatenate(parts, -1).reshape(*x_BxLxD.shape[:2], -1)

  def __call__(
    self,
    stream: jax.Array | blocks.Stream,
    state: State,
    starts_BxL: jax.Array | None,
    shared: Shared | None = None,
  ) -> tuple[jax.Array | blocks.Stream, State]:
    """Returns (stream, state); `shared` is the block that this layer uses."""
    assert isinstance(stream, blocks.Stream)
    assert shared is not None
    own = self.config.shared_block
    changes = Changes(
      self._attention_change if own.attention_adapters else None,
      self.mlp_adapter,
    )
    x = stream.x_BxLxD
    inputs = x, stream.beside[INPUTS]
    attention, y = shared(state.attention, inputs, starts_BxL, changes)
    beside = stream.beside | {blocks.ADDED: self.linear(y)}
    stream, block = super().__call__(
      stream._replace(beside=beside), state.block, starts_BxL
    )
    assert isinstance(stream, blocks.Stream)
    beside = {k: v for k, v in stream.beside.items() if k != blocks.ADDED}
    return stream._replace(beside=beside), State(block, attention)


def _dense(width, policy):
  return nn.Dense(
    width,
    use_bias=False,
    dtype=policy.activations,
    dot_general=policy.dot_general,
  )


def make(module: Any) -> list[Shared]:
  """Returns the shared blocks of a period or of a model."""
  count = module.config.shared_block.count
  own = module.config, module.plan, module.policy
  return [Shared(*own) for _ in range(count)]


def used(
  config: config_lib.Model, layer: int, shared: list[Shared]
) -> tuple[Shared, ...]:
  """Returns the block that a layer uses, or nothing."""
  own = config.shared_block
  return (shared[own.number(layer)],) if layer in own.layers else ()


def init_state(block: nn.Module, B: int) -> PyTree:
  """Returns the state of a block, which may use a shared one, for B rows.

  Needs no parameters, as `state_axes`.
  """
  state = blocks.init_state(block, B)
  if not isinstance(block, Block):
    return state
  return State(state, _attention(block, parent=None).init_state(B))


def state_axes(block: nn.Module) -> PyTree:
  """Returns the logical axes of that state, a tree like it."""
  axes = blocks.state_axes(block)
  if not isinstance(block, Block):
    return axes
  return State(axes, _attention(block, parent=None).state_axes())
