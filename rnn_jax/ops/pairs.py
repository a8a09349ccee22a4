"""Attention of linear weights, or a softmax's, by all pairs of steps.

    past:  y_t = S_0^T q_t + sum_{s<t} (q_t . k_s) v_s     S_L = S_0 + sum k v^T
    whole: y_t = sum_s w(q_t . k_s) v_s      w(z) = z, or softmax_s(z / sqrt(K))

`past` is the recurrence S_t = S_{t-1} + k_t v_t^T, y_t = S_{t-1}^T q_t of
`ops.gla` (no decay, read before the update) as a triangle of products:
quadratic in L, and with the fewest operations where L is short and S is large.
In `whole` a step sees all of its row, itself included; `ops.row_attention` has
other forms of it.

Shapes: q, k BxLxHxK; v, y BxLxHxP; S BxHxKxP in float32. Factors are rounded to
`operands` (ops/precision.py), forward and backward; sums are float32.
Sources: Katharopoulos et al., "Transformers are RNNs", 2020; Kosowski et al.,
"The Dragon Hatchling", 2025; Vaswani et al., "Attention Is All You Need", 2017.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import shapes
from rnn_jax.ops import precision

WEIGHTS = ('linear', 'softmax')


def past(
  state_BxHxKxP,
  q_BxLxHxK,
  k_BxLxHxK,
  v_BxLxHxP,
  starts_BxL=None,
  operands='float32',
):
  """Runs the steps of a row behind a state.

  Args:
    state_BxHxKxP: S before the first step; None, if it is of zeros and S
      behind the row is of no use: both cost as much as the row.
    q_BxLxHxK: what is read.
    k_BxLxHxK: where it is written.
    v_BxLxHxP: what is written.
    starts_BxL: nonzero where a document begins, which sees nothing before.
    operands: format of the factors.

  Returns:
    (state_BxHxKxP behind the last step or None, y_BxLxHxP), float32.

  Raises:
    ValueError: shapes disagree.
  """
  new = {'q_BxLxHxK': q_BxLxHxK, 'k_BxLxHxK': k_BxLxHxK, 'v_BxLxHxP': v_BxLxHxP}
  if state_BxHxKxP is not None:
    new['state_BxHxKxP'] = state_BxHxKxP
  shapes.check(**new)
  multiply = functools.partial(product, operands=operands)
  q, k, v = (x.swapaxes(1, 2) for x in (q_BxLxHxK, k_BxLxHxK, v_BxLxHxP))
  B, _, length, _ = q.shape
  # Which document of its row a step is in; 0 is that of the state.
  document_BxL = jnp.zeros((B, length), jnp.int32)
  if starts_BxL is not None:
    document_BxL = jnp.cumsum(starts_BxL != 0, 1)
  same = document_BxL[:, :, None] == document_BxL[:, None]
  seen = same & np.tril(np.ones((1, length, length), bool), -1)
  scores = jnp.where(seen[:, None], multiply(q, k, (1, 1)), 0.0)
  y = multiply(scores, v, (1, 0))
  if state_BxHxKxP is None:
    return None, y.swapaxes(1, 2)
  carried = (document_BxL == 0)[:, None, :, None]
  y += jnp.where(carried, multiply(q, state_BxHxKxP, (1, 0)), 0.0)
  last_BxL = document_BxL == document_BxL[:, -1:]
  written = jnp.where(last_BxL[:, None, :, None], k, 0)
  kept = (document_BxL[:, -1] == 0)[:, None, None, None]
  state = jnp.where(kept, state_BxHxKxP, 0.0) + multiply(written, v, (0, 0))
  return state, y.swapaxes(1, 2)


def whole(
  q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, weights='linear', operands='float32'
):
  """Has each step read all of its row.

  Args:
    q_BxLxHxK: what is looked for.
    k_BxLxHxK: what it is compared with.
    v_BxLxHxP: what is found there.
    weights: one of WEIGHTS.
    operands: format of the factors.

  Returns:
    y_BxLxHxP in float32.

  Raises:
    ValueError: shapes disagree, or `weights` is none of its choices.
  """
  shapes.check(q_BxLxHxK=q_BxLxHxK, k_BxLxHxK=k_BxLxHxK, v_BxLxHxP=v_BxLxHxP)
  if weights not in WEIGHTS:
    raise ValueError(f'weights={weights!r}: choose one of {WEIGHTS}')
  q, k, v = (x.swapaxes(1, 2) for x in (q_BxLxHxK, k_BxLxHxK, v_BxLxHxP))
  scores = product(q, k, (1, 1), operands)
  if weights == 'softmax':
    scores = jax.nn.softmax(scores * q.shape[-1] ** -0.5, -1)
  return product(scores, v, (1, 0), operands).swapaxes(1, 2)


def product(a, b, contracted, operands):
  """The matrix product of each row and head, over one axis of each."""
  dimensions = (((contracted[0],), (contracted[1],)), ((), ()))

  def one(a, b):
    return precision.dot_general(a, b, dimensions, operands)

  return jax.vmap(jax.vmap(one))(a, b)
