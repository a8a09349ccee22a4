"""A language model: embedding, R recurrent blocks, head.

    logits_t = W_head norm(stack(c embedding(tokens) + positions))_t + b

'normed' blocks, which end with a norm, begin with one, before the stack.

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
from rnn_jax.models import stack
from rnn_jax.ops import cross_entropy
from rnn_jax.ops import precision
from rnn_jax.parallel import axes
from rnn_jax.parallel import rules as rules_lib
from rnn_jax.parallel import tensor

LETTERS = {
  'embedding/embedding': 'VxD',
  'positions/table/embedding': '_xD',
  'norm/*': 'D',
  'head/kernel': 'DxV',
  'head/bias': 'V',
}


class Head(nn.Module):
  """The parameters of the head; a loss in blocks multiplies by them itself."""

  vocabulary: int
  width: int
  biased: bool = True

  @nn.compact
  def __call__(self):
    """Returns (kernel_DxV, bias_V); without a bias, zeros."""
    shape = (self.width, self.vocabulary)
    kernel = self.param('kernel', nn.initializers.lecun_normal(), shape)
    if not self.biased:
      return kernel, jnp.zeros(shape[1:])
    return kernel, self.param('bias', nn.initializers.zeros, shape[1:])


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
      self.vocabulary // self.vocabulary_shares,
      config.embedding_width or config.width,
      dtype=jnp.float32,  # so that its gradients are added up in it
      embedding_init=nn.initializers.normal(config.embedding_scale),
    )
    self.stack = stack.Stack(config, self.cell_config, self.plan, self.policy)
    if config.positions != 'none':
      self.positions = positions.Positions(
        config.positions,
        config.embedding_width or config.width,
        config.longest,
      )
    if config.block != 'plain':
      self.norm = blocks.norm(config, self.policy)
    if not config.tied:
      share = self.vocabulary // self.vocabulary_shares
      self.head = Head(share, config.width, config.head_bias)
    self.drop = blocks.dropout(config)
    # Whole tokens (Iyyer et al., "Deep Unordered Composition Rivals Syntactic
    # Methods for Text Classification", 2015).
    self.drop_tokens = nn.Dropout(config.token_dropout, broadcast_dims=(-1,))

  @property
  def vocabulary_shares(self):
    """Among how many devices the vocabulary is shared, if it can be."""
    shares = self.plan.rules.shares('V')
    return 1 if self.vocabulary % shares else shares

  @nn.nowrap
  def letters(self):
    """The letters of the parameters by their path."""
    found = stack.letters(self.config.cell)
    return LETTERS | {f'stack/{path}': x for path, x in found.items()}

  def state_letters(self):
    """The letters of the state's axes, a tree like it."""
    position = 'B' if self._has_positions else None
    return position, self.stack.state_letters()

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
    x = self._look_up(tokens_BxL) * self.config.embedding_multiplier
    return x.astype(self.policy.activations)

  def _look_up(self, tokens_BxL):
    shares = self.vocabulary_shares
    if shares == 1:
      return self.embedding(tokens_BxL)
    share = self.vocabulary // shares
    own = tokens_BxL - axes.index(tensor.AXIS) * share
    x = self.embedding(jnp.clip(own, 0, share - 1))
    mine = (own >= 0) & (own < share)
    return tensor.leave(jnp.where(mine[..., None], x, 0))

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
    if self.config.block == 'normed':
      x = self.norm(x)
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
    """Returns (kernel_DxV, bias_V), of which `logits` are made.

    Where devices share the vocabulary, these are this device's columns.
    """
    if not self.config.tied:
      return self.head()
    kernel_DxV = self.embedding.embedding.T
    # An embedding of unit variance would make logits of size sqrt(D).
    multiplier = self.config.tied_multiplier or kernel_DxV.shape[0] ** -0.5
    return kernel_DxV * multiplier, jnp.zeros(kernel_DxV.shape[1])


def token_sums(model, x_BxLxD, head, batch, options):
  """Sums of the loss of tokens, where devices may share the vocabulary.

  Args:
    model: a LanguageModel.
    x_BxLxD: what its head reads.
    head: `model.head_weights()`.
    batch: (targets_BxL, weights_BxL).
    options: cross_entropy.Options.

  Returns:
    cross_entropy.Sums, the same on each of these devices.
  """
  if model.vocabulary_shares > 1:
    x_BxLxD = tensor.enter(x_BxLxD)
    options = dataclasses.replace(options, axis=tensor.AXIS)
  return cross_entropy.sums(x_BxLxD, *head, *batch, options)


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
    plan(config),
    policy(config.train),
  )


def plan(config):
  """How a Config's model is computed, base.Plan."""
  remat = config.remat
  return base.Plan(
    config.recurrence.impl,
    config.recurrence.chunk_length or None,
    config_lib.remat_length(remat.every, config.data.length),
    remat.schedule,
    remat.kept,
    remat.layers,
    remat.keep,
    remat.offload,
    rules_lib.parse(config.mesh.rules, config.mesh.zero),
    config.mesh.micro_batches,
    not (config.data.carry_state or remat.segment),
  )


def policy(train):
  """The number formats of a Train config, precision.Policy.

  Raises:
    InputError: this device can't multiply in them.
  """
  found = precision.policy(train.precision, train.quantized)
  if lacking := precision.lacking(found.operands, jax.devices()[0]):
    raise errors.InputError(f'train.precision={train.precision!r}: {lacking}')
  return found
