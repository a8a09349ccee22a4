"""A classifier: a recurrent language model's states, pooled, and a head.

    logits_t = W pool(features)_t + b

Shapes: tokens BxL, logits BxLxC in float32, C classes. The logits of a step
are those of the text so far; the state is constant in size.
"""

import flax.linen as nn

from rnn_jax.models import language_model
from rnn_jax.ops import pooling


class Classifier(nn.Module):
  """See the module's docstring; `body` reads, and may predict the text too."""

  body: language_model.LanguageModel
  classes: int
  pooling: str

  def setup(self):
    self.head = nn.Dense(self.classes)
    self.drop = nn.Dropout(self.body.config.dropout)

  def init_state(self, B):
    """The state before a text, for B rows: the body's and the pool's."""
    width = self.body.config.width
    return self.body.init_state(B), pooling.init_state(B, width)

  def features(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, the last block's outputs BxLxD, logits_BxLxC).

    The pool reads them without a norm, so that a word may count for little.
    """
    inner, pool = state
    inner, x = self.body.hidden(inner, tokens_BxL, starts_BxL)
    pool, y = pooling.pool(pool, x, self.pooling, starts_BxL)
    y = self.drop(y, deterministic=not self.has_rng('dropout'))
    return (inner, pool), x, self.head(y)

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
  return Classifier(body, len(config.data.classes), config.task.pooling)
