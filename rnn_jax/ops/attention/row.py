"""Attention in which each step sees all of its row, itself included.

    y_t = sum_s w(q_t . k_s) v_s         w(z) = z, or softmax_s(z / sqrt(K))

Three forms return the same numbers:

    pairs     all scores at once, stored for the backward pass: memory L^2
    state     linear weights: S = sum_s k_s v_s^T, then y_t = S^T q_t. There is
              no mask, so the products can be reordered. Memory K P, operations
              linear in L, fewer if L > 2 K P / (K + P)
    blocked   softmax: blocks of queries over blocks of keys, recomputed in the
              backward pass (blocked.py): memory linear in L

Shapes: q, k BxLxHxK; v, y BxLxHxP. Sums are float32. Factors are rounded to
`operands` (ops/precision.py), except in 'blocked', which multiplies in the
inputs' dtype.
Sources: Katharopoulos et al., "Transformers are RNNs", 2020; Dao et al.,
"FlashAttention", 2022.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import pairs
from rnn_jax.ops import precision
from rnn_jax.ops.attention import blocked as attention_blocked

IMPLS = {
  'linear': ('auto', 'pairs', 'state'),
  'softmax': ('auto', 'pairs', 'blocked'),
}  # by weights
# On a CPU 256 took less time than 64 and 128, for rows of 65 to 1024.
BLOCK = 256  # queries and keys of a block
SHORT = 256  # softmax: rows up to here are faster with all scores at once


@dataclasses.dataclass(frozen=True)
class Options:
  """How to attend.

  Attributes:
    weights: one of pairs.WEIGHTS.
    impl: one of the weights' IMPLS. A named one never falls back to another.
    block: the most queries and keys in a block of 'blocked'. The result doesn't
      depend on it.
    operands: format of the factors, except in 'blocked'.
  """

  weights: str = 'linear'
  impl: str = 'auto'
  block: int = BLOCK
  operands: str = 'float32'


def attend(
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  options: Options = Options(),
) -> jax.Array:
  """Attends from each step to all of its row.

  Args:
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys.
    v_BxLxHxP: the values.
    options: Options.

  Returns:
    y_BxLxHxP in v's dtype.

  Raises:
    ValueError: shapes disagree, unknown weights, an impl that these weights
      don't have, or blocks below 1.
  """
  shapes.check(q_BxLxHxK=q_BxLxHxK, k_BxLxHxK=k_BxLxHxK, v_BxLxHxP=v_BxLxHxP)
  _check(options)
  qkv = q_BxLxHxK, k_BxLxHxK, v_BxLxHxP
  impl = options.impl
  if impl == 'auto':
    impl = _fastest(q_BxLxHxK.shape[1:], v_BxLxHxP.shape[-1], options.weights)
  if impl == 'blocked':
    return _blocked(qkv, _block(q_BxLxHxK.shape[1], options.block))
  if impl == 'state':
    y = _through_state(*qkv, options.operands)
  else:
    y = pairs.whole(*qkv, options.weights, options.operands)
  return y.astype(v_BxLxHxP.dtype)


def _check(options):
  if options.weights not in IMPLS:
    raise ValueError(
      f'weights={options.weights!r}: choose one of {tuple(IMPLS)}'
    )
  impls = IMPLS[options.weights]
  if options.impl not in impls:
    raise ValueError(
      f'impl={options.impl!r}: weights={options.weights!r} has {impls}'
    )
  if options.block < 1:
    raise ValueError(f'block={options.block}: give 1 or more')


def _fastest(shape_LxHxK, P, weights):
  length, _, K = shape_LxHxK
  if weights == 'softmax':
    return 'pairs' if length <= SHORT else 'blocked'
  return 'pairs' if length * (K + P) <= 2 * K * P else 'state'


def _through_state(q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, operands):
  q, k, v = (x.swapaxes(1, 2) for x in (q_BxLxHxK, k_BxLxHxK, v_BxLxHxP))
  state_BxHxKxP = precision.einsum('bhjk,bhjp->bhkp', k, v, operands)
  y = precision.einsum('bhik,bhkp->bhip', q, state_BxHxKxP, operands)
  return y.swapaxes(1, 2)


def _block(length, longest):
  """Returns the length of equal blocks: the last one needs little padding."""
  return -(-length // -(-length // longest))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _blocked(qkv, block):
  return _forward(qkv, block)[0]


def _forward(qkv, block):
  y, z = attention_blocked.forward(_line(qkv), _sizes(block))
  return y, (qkv, y, z)


def _backward(block, kept, dy):
  qkv, *kept = kept
  return (attention_blocked.backward(_line(qkv), _sizes(block), kept, dy),)


def _line(qkv):
  first_BxL = jnp.zeros((1, qkv[0].shape[1]), jnp.int32)
  return attention_blocked.Line(*qkv, first_BxL)


def _sizes(block):
  return attention_blocked.Sizes(block, block, causal=False)


_blocked.defvjp(_forward, _backward)
