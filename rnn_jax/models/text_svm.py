"""A linear SVM on a text's tokens and pairs of neighbors, as a recurrence.

    m_t = (sum_{s<=t} w(token_s) + w(token_{s-1}, token_s)) / sqrt(2 t) + b

of a text's first t tokens. The weights are a row of C for each token and for
each of N buckets; a pair's bucket is a hash of it (Weinberger et al., "Feature
Hashing for Large Scale Multitask Learning", 2009). Two options add features,
whose number then takes the place of 2 t:

* openings: what a text begins with, its first word up to that many, with each
  later token. A question's kind is in "how many" and in what it is about.
* case: whether a token is capitalized, all capitals or a number, alone and with
  the token before it. All other features are then of tokens in lower case.

Before training, w and b are those of a support vector machine (SVM) for each
class against all others,

    argmin (|w|^2 + b^2) / 2 + c sum_i max(0, 1 - y_i m(text_i))^2

with y_i = 1 for texts of the class and -1 for others (Fan et al.,
"LIBLINEAR: A Library for Large Linear Classification", 2008), and training
leaves them as they are. A margin of 1 counts as 4 nats.

Of short texts it is hard to beat (Wang and Manning, "Baselines and Bigrams",
2012), and it errs in other places than a network does.
"""

from collections.abc import Iterable
from collections.abc import Sequence
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
# Of tokens, see `case_of`.
OTHER, NUMBER, LOWER, CAPITAL, CAPITALS, EMPTY = range(6)


class State(NamedTuple):
  """What the SVM has read of a text."""

  token_B: jax.Array  # the last one; V at the start
  count_Bx1: jax.Array
  sum_BxC: jax.Array
  first_BxK: jax.Array | None = None  # the first tokens, if there are openings


class Case(NamedTuple):
  """What capital letters do to a vocabulary, for each of V tokens.

  Attributes:
    lower: the first token with the same text in lower case.
    shapes: OTHER, NUMBER, LOWER, CAPITAL (the first letter), CAPITALS (two or
      more letters, no small ones) or EMPTY (the boundary).
  """

  lower: tuple[int, ...]
  shapes: tuple[int, ...]


class Sizes(NamedTuple):
  """The sizes of an SVM, and which features it has."""

  vocabulary: int
  buckets: int
  classes: int
  openings: int = 0
  case: Case | None = None

  @property
  def rows(self) -> int:
    """Rows of the table: tokens, buckets of pairs, and b."""
    return self.vocabulary + self.buckets + 1

  @property
  def first(self) -> int:
    """How many first tokens openings have: the boundary is one."""
    return self.openings + 1 if self.openings else 0

  def bucket(self, before: Any, token: Any) -> Any:
    """Returns the rows of pairs of tokens, int32 as these are."""
    return self.vocabulary + _mixed(before, token) % self.buckets

  def number(self, count: Any) -> Any:
    """Returns how many features a text of `count` tokens has."""
    total = (4 if self.case else 2) * count
    for k in range(2, self.first + 1):
      # A product, as `count` may be a number, NumPy's or JAX's.
      total = total + (count - k) * (count > k)
    return total

  def features(
    self, before: Any, token: Any, place: Any, first: Sequence[Any]
  ) -> list[tuple[Any, Any]]:
    """Returns the rows of tokens, and which of them count: None for all.

    Args:
      before: the tokens before, V at the start of a text.
      token: the tokens.
      place: of each in its text, from 0.
      first: each of the text's first tokens; only those before count.
    """
    shapes = None
    if self.case:
      asarray = jnp.asarray if isinstance(token, jax.Array) else np.asarray
      lower = asarray((*self.case.lower, self.vocabulary), np.int32)
      shapes = asarray(self.case.shapes, np.int32)[token]
      before, token = lower[before], lower[token]
      first = [lower[x] for x in first]
    rows = [(token, None), (self.bucket(before, token), None)]
    # Kinds of features begin with what is no token.
    kind = self.vocabulary + 1
    if shapes is not None:
      rows.append((self.bucket(kind, shapes), None))
      rows.append((self.bucket(_mixed(kind + 1, before), shapes), None))
    for k in range(2, len(first) + 1):
      opening = kind + k
      for x in first[:k]:
        opening = _mixed(opening, x)
      rows.append((self.bucket(opening, token), place >= k))
    return rows


def _mixed(before, token):
  # Below 2^31 for up to 2^24 tokens, so that all runtimes agree.
  return before % 65521 * 31337 + token


def case_of(spelled: Sequence[bytes]) -> Case:
  """Returns the Case of a vocabulary, given the bytes of each token."""
  firsts: dict[str, int] = {}
  texts = [x.decode(errors='replace').strip() for x in spelled]
  lower = [firsts.setdefault(x.lower(), n) for n, x in enumerate(texts)]
  return Case((*lower,), (*map(_shape, texts),))


def _shape(text):
  if not text:
    return EMPTY
  if text[0].isdigit():
    return NUMBER
  if not text[0].isalpha():
    return OTHER
  if not text[0].isupper():
    return LOWER
  return CAPITALS if len(text) > 1 and text.isupper() else CAPITAL


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
      jnp.full((B, self.sizes.first), self.sizes.vocabulary, jnp.int32)
      if self.sizes.first
      else None,
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
    ones = jnp.ones((*tokens_BxL.shape, 1))
    count, count_BxLx1 = pooling.add_up(state.count_Bx1, ones, starts_BxL)
    place_BxL = count_BxLx1[..., 0].astype(jnp.int32) - 1
    first, first_KxBxL = self._first(state, tokens_BxL, place_BxL)
    addends = jnp.zeros(())
    for rows_BxL, counts_BxL in self.sizes.features(
      before, tokens_BxL, place_BxL, first_KxBxL
    ):
      own = table[rows_BxL]
      if counts_BxL is not None:
        own = jnp.where(counts_BxL[..., None], own, 0.0)
      addends = addends + own
    total, sum_BxLxC = pooling.add_up(state.sum_BxC, addends, starts_BxL)
    b_1x1xC = table[None, -1:]
    number = self.sizes.number(count_BxLx1)
    margins = sum_BxLxC * jax.lax.rsqrt(number) + b_1x1xC
    state = State(tokens_BxL[:, -1], count, total, first)
    return state, NATS * margins

  def _first(self, state, tokens_BxL, place_BxL):
    """Returns (the next state's first tokens, each one at each step).

    Those that a step hasn't read yet are any tokens.
    """
    if state.first_BxK is None:
      return None, []
    K, L = self.sizes.first, tokens_BxL.shape[1]
    read_BxM = jnp.concatenate([state.first_BxK, tokens_BxL], 1)
    begins_BxL = jnp.arange(L)[None] - place_BxL  # below 0: before
    chosen = []
    for k in range(K):
      step_BxL = begins_BxL + k
      at_BxL = jnp.where(
        (begins_BxL < 0) & (step_BxL < 0), k, jnp.clip(K + step_BxL, 0, K + L)
      )
      at_BxL = jnp.minimum(at_BxL, K + L - 1)
      chosen.append(jnp.take_along_axis(read_BxM, at_BxL, 1))
    return jnp.stack([x[:, -1] for x in chosen], 1), chosen


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
    place = np.arange(len(ids))
    # Of a text shorter than its openings none counts.
    first = [ids[min(k, len(ids) - 1)] for k in range(sizes.first)]
    own = np.concatenate(
      [
        rows if counts is None else rows[counts]
        for rows, counts in sizes.features(before, ids, place, first)
      ]
    )
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
