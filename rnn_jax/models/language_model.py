"""A language model: embedding, R recurrent blocks, head.

    z_t = W_head m norm(stack(c embedding(tokens) + positions))_t + b
    logits_t = s tanh(z_t / s) with s = model.logits_cap, or z_t

with c = model.embedding_multiplier and m = model.head_multiplier.

'normed' blocks, which end with a norm, have it before the stack instead. With
model.embedding_norm others have one of its own there.

Shapes: tokens BxL, logits BxLxV in float32. The state is constant in size and
summarizes the past: (positions or None, the stack's state).
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import positions
from rnn_jax.models import stack
from rnn_jax.ops import cross_entropy
from rnn_jax.ops import devices
from rnn_jax.ops import precision
from rnn_jax.system import target

PyTree = Any
BODY = 'body'  # a language model's name within another model
LOGICAL_AXES = {
  'embedding/embedding': 'VxD',
  'positions/table/embedding': '_xD',
  'norm/*': 'D',
  'embedding_norm/*': 'D',
  'head/kernel': 'DxV',
  'head/bias': 'V',
}


class Head(nn.Module):
  """The parameters of the head; the loss in blocks multiplies by them."""

  vocabulary: int
  width: int
  biased: bool = True

  @nn.compact
  def __call__(self) -> tuple[jax.Array, jax.Array]:
    """Returns (kernel_DxV, bias_V), zeros if there is no bias."""
    shape = (self.width, self.vocabulary)
    kernel = self.param('kernel', nn.initializers.lecun_normal(), shape)
    if not self.biased:
      return kernel, jnp.zeros(shape[1:])
    return kernel, self.param('bias', nn.initializers.zeros, shape[1:])


class LanguageModel(nn.Module):
  """See the module's docstring; build it with `from_config`."""

  config: config_lib.Model
  cell_config: Any
  vocabulary: int
  plan: base.Plan = base.Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def setup(self) -> None:
    config = self.config
    self.embedding = nn.Embed(
      self.vocabulary // self.vocabulary_shards,
      config.embedding_width or config.width,
      dtype=jnp.float32,  # its gradients are summed in this dtype
      embedding_init=nn.initializers.normal(config.embedding_scale),
    )
    self.stack = stack.Stack(config, self.cell_config, self.plan, self.policy)
    if config.positions != 'none':
      self.positions = positions.Positions(
        config.positions,
        config.embedding_width or config.width,
        config.max_positions,
      )
    if config.block != 'plain':
      self.norm = blocks.norm(config, self.policy)
    if config.embedding_norm:
      self.embedding_norm = blocks.norm(config, self.policy)
    if not config.tied:
      columns = self.vocabulary // self.vocabulary_shards
      self.head = Head(columns, config.width, config.head_bias)
    self.drop = blocks.dropout(config)
    self.drop_outputs = blocks.dropout(config)
    # Whole tokens (Iyyer et al., "Deep Unordered Composition Rivals Syntactic
    # Methods for Text Classification", 2015).
    self.drop_tokens = nn.Dropout(config.token_dropout, broadcast_dims=(-1,))

  @property
  def vocabulary_shards(self) -> int:
    """Over how many devices the vocabulary is sharded; 1 if it isn't."""
    shards = devices.current().shards('V')
    return 1 if self.vocabulary % shards else shards

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    axes = stack.logical_axes(self.config)
    return LOGICAL_AXES | {f'stack/{path}': x for path, x in axes.items()}

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the state, a tree like it."""
    position = 'B' if self._has_positions else None
    return position, self.stack.state_axes()

  def init_state(self, B: int) -> PyTree:
    """Returns the state before a document, for B rows."""
    return self._init_positions(B), self.stack.init_state(B)

  def _init_positions(self, B):
    return self.positions.init_state(B) if self._has_positions else None

  @property
  def longest(self) -> int:
    """How many tokens learned positions allow; 0: any number."""
    learned = self.config.positions == 'learned'
    return self.config.max_positions if learned else 0

  @property
  def _has_positions(self):
    return self.config.positions != 'none'

  def features(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, the head's inputs BxLxD)."""
    state, x = self.hidden(state, tokens_BxL, starts_BxL)
    return state, self.normalize(x)

  def normalize(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns the head's inputs BxLxD from the last block's outputs."""
    if blocks.drops_inputs(self.config):
      x_BxLxD = self.drop_outputs(x_BxLxD, deterministic=self._is_fixed)
    if self.config.block == 'residual':
      x_BxLxD = self.norm(x_BxLxD)
    multiplier = self.config.head_multiplier
    return x_BxLxD if multiplier == 1 else multiplier * x_BxLxD

  @property
  def _is_fixed(self):
    return not self.has_rng('dropout')

  def embed(self, tokens_BxL: jax.Array) -> jax.Array:
    """Returns c embedding(tokens), BxLxD."""
    x = self.look_up(tokens_BxL) * self.config.embedding_multiplier
    return x.astype(self.policy.activations)

  def look_up(self, tokens_BxL: jax.Array) -> jax.Array:
    """Returns rows of the embedding, BxLxD."""
    shards = self.vocabulary_shards
    if shards == 1:
      return self.embedding(tokens_BxL)
    rows = self.vocabulary // shards
    local = tokens_BxL - devices.current().shard('V') * rows
    x = self.embedding(jnp.clip(local, 0, rows - 1))
    is_local = (local >= 0) & (local < rows)
    x = jnp.where(is_local[..., None], x, 0)
    return devices.current().tp_reduce(x)

  def hidden(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
    added_BxLxD: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, the last block's outputs BxLxD).

    `added_BxLxD` is added to the embeddings.
    """
    position, inner = state
    position, x = self.read(position, tokens_BxL, starts_BxL, added_BxLxD)
    inner, x = self.stack(inner, x, starts_BxL)
    return (position, inner), x

  def read(
    self,
    position_B: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
    added_BxLxD: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (position_B, the first block's inputs BxLxD).

    `position_B` is the state of the positions, or None; `added_BxLxD` is
    added to the embeddings.
    """
    x = self.embed(tokens_BxL)
    if added_BxLxD is not None:
      x = x + added_BxLxD.astype(x.dtype)
    x = self.drop_tokens(x, deterministic=self._is_fixed)
    if self._has_positions:
      position_B, x = self.positions(position_B, x, starts_BxL)
    if self.config.block == 'normed':
      x = self.norm(x)
    if self.config.embedding_norm:
      x = self.embedding_norm(x)
    if blocks.drops_inputs(self.config):
      return position_B, x
    return position_B, self.drop(x, deterministic=self._is_fixed)

  def __call__(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, logits_BxLxV)."""
    state, x = self.features(state, tokens_BxL, starts_BxL)
    return state, self.logits(x)

  def logits(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns logits_BxLxV of the head's inputs, see `features`."""
    return cross_entropy.cap(self.uncapped(x_BxLxD), self.config.logits_cap)

  def uncapped(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns the head's outputs BxLxV, z in the module's docstring."""
    kernel_DxV, bias_V = self.head_weights()
    contract = (((2,), (0,)), ((), ()))
    operands = self.policy.operands  # as in the loss, which isn't quantized
    logits = precision.dot_general(x_BxLxD, kernel_DxV, contract, operands)
    return logits + bias_V[None, None]

  def head_weights(self) -> tuple[jax.Array, jax.Array]:
    """Returns (kernel_DxV, bias_V) of the head.

    Where the vocabulary is sharded, these are this device's columns.
    """
    if not self.config.tied:
      return self.head()
    kernel_DxV = self.embedding.embedding.T
    return kernel_DxV * self.tied_scale, jnp.zeros(kernel_DxV.shape[1])

  @property
  def tied_scale(self) -> float:
    """By what an embedding is multiplied as a head."""
    # An embedding of unit variance would give logits of size sqrt(D).
    width = self.config.embedding_width or self.config.width
    return self.config.tied_multiplier or width**-0.5


def token_sums(
  model: LanguageModel,
  x_BxLxD: jax.Array,
  head: tuple[jax.Array, jax.Array],
  batch: tuple[jax.Array, jax.Array],
  options: cross_entropy.Options,
) -> cross_entropy.Sums:
  """Returns the sums of the tokens' loss; the vocabulary may be sharded.

  Args:
    model: the language model.
    x_BxLxD: its head's inputs.
    head: `model.head_weights()`.
    batch: (targets_BxL, weights_BxL).
    options: of the loss, without the cap, which is the model's.

  Returns:
    cross_entropy.Sums, the same on all devices that shard the vocabulary.
  """
  options = dataclasses.replace(options, cap=model.config.logits_cap)
  if model.vocabulary_shards > 1:
    x_BxLxD = devices.current().tp_copy(x_BxLxD)
    axis = devices.current().axis_name('V')
    options = dataclasses.replace(options, axis=axis)
  return cross_entropy.sums(x_BxLxD, *head, *batch, options)


def from_config(config: config_lib.Config, vocabulary: int) -> LanguageModel:
  """Returns the model of a config, for a vocabulary of that size.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  positions = config.model.max_positions or config.data.length
  return LanguageModel(
    dataclasses.replace(config.model, max_positions=positions),
    config.cell,
    vocabulary,
    plan(config),
    policy(config),
  )


def plan(config: config_lib.Config) -> base.Plan:
  """Returns how a config's model is computed."""
  remat, pattern = config.remat, len(config.model.pattern)
  return base.Plan(
    config.recurrence.impl,
    config.recurrence.chunk_length or None,
    config_lib.remat_length(remat.every, config.data.length),
    remat.schedule,
    remat.kept,
    remat.layers // pattern,
    remat.stored_layers // pattern,
    remat.keep,
    remat.offload,
    not (config.data.carry_state or remat.segment),
  )


def policy(config: config_lib.Config) -> precision.Policy:
  """Returns the number formats of a config.

  Raises:
    InputError: this device can't multiply in them.
  """
  train, recurrence = config.train, config.recurrence.operands
  formats = precision.policy(train.precision, train.quantized, recurrence)
  for key, name, operands in (
    ('train.precision', train.precision, formats.operands),
    ('recurrence.operands', recurrence, recurrence),
  ):
    if lacking := precision.lacking(operands, target.device()):
      errors.refuse(key, name, lacking)
  return formats
