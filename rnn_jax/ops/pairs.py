"""Attention with linear or softmax weights, computed over all pairs of steps.

    past:  y_t = S_0^T q_t + sum_{s<t} (q_t . k_s) v_s     S_L = S_0 + sum k v^T
    whole: y_t = sum_s w(q_t . k_s) v_s      w(z) = z, or softmax_s(z / sqrt(K))

`past` is the recurrence S_t = S_{t-1} + k_t v_t^T, y_t = S_{t-1}^T q_t of
`ops.gla` (no decay, read before the update) as a triangle of products:
quadratic in L, with the fewest operations where L is short and S is large. In
`whole` a step sees all of its row, itself included; `ops.attention.row` has
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
from rnn_jax.ops import checks
from rnn_jax.ops import precision

WEIGHTS = ('linear', 'softmax')


def past(
  state_BxHxKxP: jax.Array | None,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  starts_BxL: jax.Array | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array | None, jax.Array]:
  """Continues the recurrence from a state over one row.

  Args:
    state_BxHxKxP: S before the first step. None if it is zero and the last S
      isn't needed: each of the two costs as much as the row.
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys.
    v_BxLxHxP: the values.
    starts_BxL: nonzero where a document begins: it sees no earlier step.
    operands: format of the factors.

  Returns:
    (state_BxHxKxP after the last step or None, y_BxLxHxP), float32; the state
    in bfloat16 if it was given so.

  Raises:
    ValueError: shapes disagree.
  """
  arrays = {
    'q_BxLxHxK': q_BxLxHxK,
    'k_BxLxHxK': k_BxLxHxK,
    'v_BxLxHxP': v_BxLxHxP,
  }
  if state_BxHxKxP is not None:
    arrays['state_BxHxKxP'] = state_BxHxKxP
  shapes.check(**arrays)
  multiply = functools.partial(precision.einsum, operands=operands)
  q, k, v = (x.swapaxes(1, 2) for x in (q_BxLxHxK, k_BxLxHxK, v_BxLxHxP))
  B, _, length, _ = q.shape
  # The number of each step's document in its row; 0 is that of the state.
  document_BxL = jnp.zeros((B, length), jnp.int32)
  if starts_BxL is not None:
    document_BxL = jnp.cumsum(starts_BxL != 0, 1)
  same = document_BxL[:, :, None] == document_BxL[:, None]
  seen = same & np.tril(np.ones((1, length, length), bool), -1)
  scores = multiply('bhik,bhjk->bhij', q, k)
  scores = jnp.where(seen[:, None], scores, 0.0)
  y = multiply('bhij,bhjp->bhip', scores, v)
  if state_BxHxKxP is None:
    return None, y.swapaxes(1, 2)
  carried = (document_BxL == 0)[:, None, :, None]
  read = multiply('bhik,bhkp->bhip', q, state_BxHxKxP)
  y += jnp.where(carried, read, 0.0)
  last_BxL = document_BxL == document_BxL[:, -1:]
  written = jnp.where(last_BxL[:, None, :, None], k, 0)
  kept = (document_BxL[:, -1] == 0)[:, None, None, None]
  state = multiply('bhjk,bhjp->bhkp', written, v)
  state += jnp.where(kept, state_BxHxKxP, 0.0)
  state = state.astype(checks.state_dtype(state_BxHxKxP))
  return state, y.swapaxes(1, 2)


def whole(
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  weights: str = 'linear',
  operands: str = 'float32',
) -> jax.Array:
  """Attends from each step to all of its row.

  Args:
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys.
    v_BxLxHxP: the values.
    weights: one of WEIGHTS.
    operands: format of the factors.

  Returns:
    y_BxLxHxP in float32.

  Raises:
    ValueError: shapes disagree, or `weights` isn't one of WEIGHTS.
  """
  shapes.check(q_BxLxHxK=q_BxLxHxK, k_BxLxHxK=k_BxLxHxK, v_BxLxHxP=v_BxLxHxP)
  if weights not in WEIGHTS:
    raise ValueError(f'weights={weights!r}: choose one of {WEIGHTS}')
  q, k, v = (x.swapaxes(1, 2) for x in (q_BxLxHxK, k_BxLxHxK, v_BxLxHxP))
  scores = precision.einsum('bhik,bhjk->bhij', q, k, operands)
  if weights == 'softmax':
    scores = jax.nn.softmax(scores * q.shape[-1] ** -0.5, -1)
  y = precision.einsum('bhij,bhjp->bhip', scores, v, operands)
  return y.swapaxes(1, 2)
