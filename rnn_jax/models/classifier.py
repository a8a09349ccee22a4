"""A text classifier: a recurrent language model, a pool and a head.

    logits_t = W pool(features)_t + b [+ sum_{s <= t} evidence(token_s)]

With task.svm a linear SVM, text_svm.py, has half of the vote:

    logits_t = log((softmax(logits_t) + softmax(svm_t)) / 2)

or task.svm_share of it rather than half. With task.case it reads which tokens
have capital letters, and all else reads tokens in lower case. With task.ngrams
a token's embedding also has those of its character n-grams added to it,
character_ngrams.py.

Shapes: tokens BxL, logits BxLxC in float32, C classes. The logits of a step
are those of the text so far; the state is constant in size. With
model.bidirectional only a text's last step has its logits, and 'last' is the
last step that each direction reads: of the second half of x, the text's first.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import character_ngrams
from rnn_jax.models import language_model
from rnn_jax.models import text_svm
from rnn_jax.ops import pooling
from rnn_jax.ops import reversal

PyTree = Any
LOGICAL_AXES = {
  'head/kernel': '_x_',
  'head/bias': '_',
  'table/embedding': '_x_',
  **{
    f'ngram_table/{path}': x
    for path, x in character_ngrams.LOGICAL_AXES.items()
  },
  **{f'svm/{path}': x for path, x in text_svm.LOGICAL_AXES.items()},
}


class Classifier(nn.Module):
  """See the module's docstring; `body` may also predict the text."""

  body: language_model.LanguageModel
  classes: int
  pooling: str
  evidence: bool = False  # whether there is a table of class logits per token
  linear: text_svm.Sizes | None = None  # of the linear SVM
  share: float = 0.5  # of the vote, the linear SVM's
  ngrams: int = 0  # rows of a table of character n-grams
  spelled: tuple[bytes, ...] = ()  # of each token, for these

  def setup(self) -> None:
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
    if self.linear:
      self.svm = text_svm.Svm(self.linear)
    if self.ngrams:
      options = self.body.config
      self.ngram_table = character_ngrams.CharacterNgrams(
        self.spelled,
        self.ngrams,
        options.embedding_width or options.width,
        options.embedding_scale,
      )

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    axes, name = self.body.logical_axes(), language_model.BODY
    return LOGICAL_AXES | {f'{name}/{path}': x for path, x in axes.items()}

  def init_state(self, B: int) -> PyTree:
    """Returns the state before a text, for B rows.

    It is (the body's, the pool's, the sum of the evidence), and that of the
    linear SVM if there is one.
    """
    pool = pooling.init_state(B, self.body.config.width)
    state = self.body.init_state(B), pool, jnp.zeros((B, self.classes))
    return (*state, self.svm.init_state(B)) if self.linear else state

  def pooled(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array, jax.Array]:
    """Returns ((inner, pool), the last block's outputs BxLxD, their pool).

    `state` is the first two of a state's three parts. The pool of each step is
    that of the text so far, float32, BxLxD or BxLx3D.
    """
    inner, pool = state
    added = self.ngram_table(tokens_BxL) if self.ngrams else None
    if self.linear and self.linear.case:
      tokens_BxL = jnp.asarray(self.linear.case.lower, jnp.int32)[tokens_BxL]
    inner, x = self.body.hidden(inner, tokens_BxL, starts_BxL, added)
    last = self._last(x, starts_BxL) if self._is_bidirectional else None
    pool, y = pooling.pool(pool, x, self.pooling, starts_BxL, last)
    return (inner, pool), x, y

  @property
  def _is_bidirectional(self):
    return self.body.config.bidirectional

  def _last(self, x_BxLxD, starts_BxL):
    """Returns what each direction has read last, BxLxD."""
    forward, backward = jnp.split(x_BxLxD, 2, -1)
    backward = reversal.from_first(backward, starts_BxL)
    return jnp.concatenate([forward, backward], -1)

  def features(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array, tuple[jax.Array, ...]]:
    """Returns (state, the last block's outputs BxLxD, logits).

    The logits are the network's BxLxC, and the linear SVM's if there is
    one. The pool reads the outputs without a norm, so that a word may have
    little weight.
    """
    inner, pool, total = state[:3]
    (inner, pool), x, y = self.pooled((inner, pool), tokens_BxL, starts_BxL)
    fixed = not self.has_rng('dropout')
    logits = self.head(self.drop(y, deterministic=fixed))
    if self.evidence:
      evidence = self.drop_tokens(self.table(tokens_BxL), deterministic=fixed)
      total, evidence = pooling.add_up(total, evidence, starts_BxL)
      logits = logits + evidence
    if not self.linear:
      return (inner, pool, total), x, (logits,)
    svm, linear = self.svm(state[3], tokens_BxL, starts_BxL)
    return (inner, pool, total, svm), x, (logits, linear)

  def __call__(
    self,
    state: PyTree,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, logits_BxLxC)."""
    state, _, logits = self.features(state, tokens_BxL, starts_BxL)
    return state, self.vote(logits)

  @nn.nowrap
  def vote(self, each: tuple[jax.Array, ...]) -> jax.Array:
    """Returns the logits ...xC of both together, as `features` has them."""
    return vote(each, self.share)

  def text_head(
    self, x_BxLxD: jax.Array
  ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Returns (the inputs of the body's head, (kernel_DxV, bias_V)).

    `x_BxLxD` are the last block's outputs.
    """
    return self.body.normalize(x_BxLxD), self.body.head_weights()


def vote(each: tuple[jax.Array, ...], share: float = 0.5) -> jax.Array:
  """Returns the logits ...xC of the mean probability, given those of each.

  Of two, `share` is the weight of the second one.
  """
  if len(each) == 1:
    return each[0]
  logs = math.log(1 - share), math.log(share) if share else -math.inf
  logp = [
    jax.nn.log_softmax(x.astype(jnp.float32)) + log
    for x, log in zip(each, logs, strict=True)
  ]
  return jax.nn.logsumexp(jnp.stack(logp), 0)


def from_config(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> Classifier:
  """Returns the classifier of a config, for texts of that tokenizer.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  task: Any = config.task  # the task's own Config
  body = language_model.from_config(config, tokenizer.size)
  return Classifier(
    body,
    len(config.data.classes),
    task.pooling,
    task.evidence > 0,
    svm_sizes(config, tokenizer) if task.svm else None,
    task.svm_share,
    task.ngrams,
    tokenizer.spelled if task.ngrams else (),
  )


def svm_sizes(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> text_svm.Sizes:
  """Returns the sizes of a config's linear SVM."""
  task: Any = config.task
  return text_svm.Sizes(
    tokenizer.size,
    task.pairs,
    len(config.data.classes),
    task.openings,
    text_svm.case_of(tokenizer.spelled) if task.case else None,
  )
