"""A language model: embedding, R recurrent blocks, head.

    logits_t = W_head norm(stack(c embedding(tokens) + positions))_t + b

Shapes: tokens BxL, logits BxLxV in float32. The state is constant in size and
carries all that the model knows of the past: (positions or None, the stack's).
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import positions
from rnn_jax.ops import precision


class Head(nn.Module):
  """The parameters of the head; a loss in blocks multiplies by them itself."""

  vocabulary: int
  width: int

  @nn.compact
  def __call__(self):
    """Returns (kernel_DxV, bias_V)."""
    shape = (self.width, self.vocabulary)
    return (
      self.param('kernel', nn.initializers.lecun_normal(), shape),
      self.param('bias', nn.initializers.zeros, shape[1:]),
    )


class LanguageModel(nn.Module):
  """See the module's docstring; build it with `from_config`."""

  config: config_lib.Model
  cell_config: object
  vocabulary: int
  plan: base.Plan = base.Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def setup(self):
    config = self.config
    self.embedding = nn.Embed(
      self.vocabulary,
      config.embedding_width or config.width,
      dtype=jnp.float32,  # so that its gradients are added up in it
      embedding_init=nn.initializers.normal(config.embedding_scale),
    )
    self.stack = blocks.Stack(config, self.cell_config, self.plan, self.policy)
    if config.positions != 'none':
      self.positions = positions.Positions(
        config.positions,
        config.embedding_width or config.width,
        config.longest,
      )
    if config.block == 'residual':
      self.norm = blocks.norm(config, self.policy)
    if not config.tied:
      self.head = Head(self.vocabulary, config.width)
    self.drop = blocks.dropout(config)
    # Whole tokens (Iyyer et al., "Deep Unordered Composition Rivals Syntactic
    # Methods for Text Classification", 2015).
    self.drop_tokens = nn.Dropout(config.token_dropout, broadcast_dims=(-1,))

  def init_state(self, B):
    """The state before a document, for B rows."""
    return self._init_positions(B), self.stack.init_state(B)

  def _init_positions(self, B):
    return self.positions.init_state(B) if self._has_positions else None

  @property
  def _has_positions(self):
    return self.config.positions != 'none'

  def features(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, what the head reads, BxLxD)."""
    state, x = self.hidden(state, tokens_BxL, starts_BxL)
    return state, self.normalize(x)

  def normalize(self, x_BxLxD):
    """Returns what the head reads of the last block's outputs."""
    return self.norm(x_BxLxD) if self.config.block == 'residual' else x_BxLxD

  def embed(self, tokens_BxL):
    """Returns c embedding(tokens), BxLxD."""
    x = self.embedding(tokens_BxL) * self.config.embedding_multiplier
    return x.astype(self.policy.activations)

  def hidden(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, the last block's outputs, BxLxD)."""
    position, inner = state
    position, x = self.read(position, tokens_BxL, starts_BxL)
    inner, x = self.stack(inner, x, starts_BxL)
    return (position, inner), x

  def read(self, position_B, tokens_BxL, starts_BxL=None):
    """Returns (position_B, what enters the first block, BxLxD)."""
    fixed = not self.has_rng('dropout')
    x = self.embed(tokens_BxL)
    x = self.drop_tokens(x, deterministic=fixed)
    if self._has_positions:
      position_B, x = self.positions(position_B, x, starts_BxL)
    return position_B, self.drop(x, deterministic=fixed)

  def __call__(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, logits_BxLxV)."""
    state, x = self.features(state, tokens_BxL, starts_BxL)
    kernel_DxV, bias_V = self.head_weights()
    contract = (((2,), (0,)), ((), ()))
    operands = self.policy.operands  # as in the loss, which is not quantized
    logits = precision.dot_general(x, kernel_DxV, contract, operands)
    return state, logits + bias_V[None, None]

  def head_weights(self):
    """Returns (kernel_DxV, bias_V), of which `logits` are made."""
    if not self.config.tied:
      return self.head()
    kernel_DxV = self.embedding.embedding.T
    # An embedding of unit variance would make logits of size sqrt(D).
    kernel_DxV = kernel_DxV * kernel_DxV.shape[0] ** -0.5
    return kernel_DxV, jnp.zeros(self.vocabulary)


def from_config(config, vocabulary):
  """The model that a Config describes, for a vocabulary of that size.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  longest = config.model.longest or config.data.length
  return LanguageModel(
    dataclasses.replace(config.model, longest=longest),
    config.cell,
    vocabulary,
    _plan(config),
    _policy(config.train),
  )


def _plan(config):
  remat = config.remat
  return base.Plan(
    config.recurrence.impl,
    config.recurrence.chunk_length,
    config_lib.remat_length(remat.every, config.data.length),
    remat.layers,
    remat.keep,
    remat.offload,
  )


def _policy(train):
  policy = precision.policy(train.precision, train.quantized)
  if lacking := precision.lacking(policy.operands, jax.devices()[0]):
    raise errors.InputError(f'train.precision={train.precision!r}: {lacking}')
  return policy
