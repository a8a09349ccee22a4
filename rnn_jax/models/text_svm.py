"""A linear SVM on a text's tokens and pairs of neighbors, as a recurrence.

    m_t = (sum_{s<=t} w(token_s) + w(token_{s-1}, token_s)) / sqrt(2 t) + b

of a text's first t tokens. The weights are a row of C for each token and for
each of N buckets; a pair's bucket is a hash of it (Weinberger et al., "Feature
Hashing for Large Scale Multitask Learning", 2009). Before training, w and b are
those of a support vector machine (SVM) for each class against all others,

    argmin (|w|^2 + b^2) / 2 + c sum_i max(0, 1 - y_i m(text_i))^2

with y_i = 1 for texts of the class and -1 for others (Fan et al.,
"LIBLINEAR: A Library for Large Linear Classification", 2008), and training
leaves them as they are. A margin of 1 counts as 4 nats.

Of short texts it is hard to beat (Wang and Manning, "Baselines and Bigrams",
2012), and it errs in other places than a network does.
"""

from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import pooling

LOGICAL_AXES = {'table': '_x_'}
NATS = 4.0  # of a margin of 1: about what calibrates held-out texts
ABSENT = -1.0  # the margin of a class that no text has: the SVM's own


class State(NamedTuple):
  """What the SVM has read of a text."""

  token_B: jax.Array  # the last one; V at the start
  count_Bx1: jax.Array
  sum_BxC: jax.Array


class Sizes(NamedTuple):
  """The sizes of an SVM."""

  vocabulary: int
  buckets: int
  classes: int

  @property
  def rows(self) -> int:
    """Rows of the table: tokens, buckets of pairs, and b."""
    return self.vocabulary + self.buckets + 1

  def bucket(self, before: Any, token: Any) -> Any:
    """Returns the rows of pairs of tokens, int32 as these are."""
    # Below 2^31 for up to 2^24 tokens, so that all runtimes agree.
    mixed = before % 65521 * 31337 + token
    return self.vocabulary + mixed % self.buckets


class Svm(nn.Module):
  """See the module's docstring; `fit` returns its table."""

  sizes: Sizes

  def setup(self) -> None:
    shape = self.sizes.rows, self.sizes.classes
    self.table = self.param('table', nn.initializers.zeros, shape)

  @nn.nowrap
  def init_state(self, B: int) -> State:
    """Returns the state before a text, for B rows."""
    return State(
      jnp.full((B,), self.sizes.vocabulary, jnp.int32),
      jnp.zeros((B, 1)),
      jnp.zeros((B, self.sizes.classes)),
    )

  def __call__(
    self,
    state: State,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[State, jax.Array]:
    """Returns (state, logits_BxLxC), float32, through which no gradient runs.

    `starts_BxL` is above 0 where a text begins.
    """
    table = jax.lax.stop_gradient(self.table)
    before = jnp.concatenate([state.token_B[:, None], tokens_BxL[:, :-1]], 1)
    if starts_BxL is not None:
      before = jnp.where(starts_BxL > 0, self.sizes.vocabulary, before)
    pairs_BxL = self.sizes.bucket(before, tokens_BxL)
    addends = table[tokens_BxL] + table[pairs_BxL]
    total, sum_BxLxC = pooling.add_up(state.sum_BxC, addends, starts_BxL)
    ones = jnp.ones((*tokens_BxL.shape, 1))
    count, count_BxLx1 = pooling.add_up(state.count_Bx1, ones, starts_BxL)
    b_1x1xC = table[None, -1:]
    margins = sum_BxLxC * jax.lax.rsqrt(2 * count_BxLx1) + b_1x1xC
    return State(tokens_BxL[:, -1], count, total), NATS * margins


def fit(
  texts: Iterable[np.ndarray],
  labels_N: np.ndarray,
  sizes: Sizes,
  c: float,
  class_weights: tuple[float, ...] = (),
) -> np.ndarray:
  """Returns the table of an Svm, RxC, float32.

  Args:
    texts: ids of each.
    labels_N: the class of each.
    sizes: of the SVM.
    c: the weight of the loss, above 0.
    class_weights: of the texts of each class; (): 1.
  """
  from scipy import sparse  # takes long to import
  from sklearn import svm

  columns, ends, values = [], [0], []
  for ids in texts:
    before = np.append(np.int32(sizes.vocabulary), ids[:-1])
    own = np.concatenate([ids, sizes.bucket(before, ids)])
    columns.append(own)
    values.append(np.full(len(own), len(own) ** -0.5))
    ends.append(ends[-1] + len(own))
  shape = len(columns), sizes.rows - 1
  X = sparse.csr_matrix(
    (np.concatenate(values), np.concatenate(columns), ends), shape
  )
  X.sum_duplicates()
  fitted = svm.LinearSVC(
    C=c, class_weight=dict(enumerate(class_weights)) or None, random_state=0
  ).fit(X, labels_N)
  weights_CxR = np.c_[fitted.coef_, fitted.intercept_]
  if len(weights_CxR) == 1:  # of two classes it has the second one's
    weights_CxR = np.concatenate([-weights_CxR, weights_CxR])
  table_RxC = np.zeros((sizes.rows, sizes.classes), np.float32)
  table_RxC[-1] = ABSENT
  table_RxC[:, fitted.classes_] = weights_CxR.T
  return table_RxC
