"""A classifier: a recurrent language model's states, pooled, and a head.

    logits_t = W pool(features)_t + b [+ sum_{s <= t} evidence(token_s)]

Shapes: tokens BxL, logits BxLxC in float32, C classes. The logits of a step
are those of the text so far; the state is constant in size.
"""

import flax.linen as nn
import jax.numpy as jnp

from rnn_jax.models import language_model
from rnn_jax.ops import pooling

LETTERS = {'head/kernel': '_x_', 'head/bias': '_', 'table/embedding': '_x_'}


class Classifier(nn.Module):
  """See the module's docstring; `body` reads, and may predict the text too."""

  body: language_model.LanguageModel
  classes: int
  pooling: str
  evidence: bool = False  # a table of what each token says of the classes

  def setup(self):
    self.head = nn.Dense(self.classes)
    self.drop = nn.Dropout(self.body.config.dropout)
    if self.evidence:
      self.table = nn.Embed(
        self.body.vocabulary,
        self.classes,
        embedding_init=nn.initializers.zeros,
      )
      self.drop_tokens = nn.Dropout(
        self.body.config.token_dropout, broadcast_dims=(-1,)
      )

  @nn.nowrap
  def letters(self):
    """The letters of the parameters by their path."""
    body = {f'body/{path}': x for path, x in self.body.letters().items()}
    return LETTERS | body

  def init_state(self, B):
    """The state before a text, for B rows: the body's, the pool's, the sum."""
    pool = pooling.init_state(B, self.body.config.width)
    return self.body.init_state(B), pool, jnp.zeros((B, self.classes))

  def features(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, the last block's outputs BxLxD, logits_BxLxC).

    The pool reads them without a norm, so that a word may count for little.
    """
    inner, pool, total = state
    inner, x = self.body.hidden(inner, tokens_BxL, starts_BxL)
    pool, y = pooling.pool(pool, x, self.pooling, starts_BxL)
    trains = self.has_rng('dropout')
    logits = self.head(self.drop(y, deterministic=not trains))
    if self.evidence:
      told = self.drop_tokens(self.table(tokens_BxL), deterministic=not trains)
      total, told = pooling.add_up(total, told, starts_BxL)
      logits = logits + told
    return (inner, pool, total), x, logits

  def __call__(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, logits_BxLxC)."""
    state, _, logits = self.features(state, tokens_BxL, starts_BxL)
    return state, logits

  def text_head(self, x_BxLxD):
    """Returns (what predicts the text of a block's outputs, its weights)."""
    return self.body.normalize(x_BxLxD), self.body.head_weights()


def from_config(config, vocabulary):
  """The classifier that a Config describes, for a vocabulary of that size."""
  body = language_model.from_config(config, vocabulary)
  return Classifier(
    body,
    len(config.data.classes),
    config.task.pooling,
    config.task.evidence > 0,
  )
