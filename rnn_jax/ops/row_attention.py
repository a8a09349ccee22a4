"""Attention in which each step sees all of its row, itself included.

    y_t = sum_s w(q_t . k_s) v_s         w(z) = z, or softmax_s(z / sqrt(K))

Three forms compute it, and return the same numbers:

    pairs     all scores at once, kept for the backward pass: memory L^2
    state     linear weights: S = sum_s k_s v_s^T, then y_t = S^T q_t. Nothing
              masks a score, so the products may be made in this order. Memory
              K P, operations linear in L, fewer from L = 2 K P / (K + P) on
    blocked   softmax: blocks of queries over blocks of keys, with scores that
              the backward pass makes again (`attention_blocked`): memory
              linear in L

Shapes: q, k BxLxHxK; v, y BxLxHxP. Sums are float32. Factors are rounded to
`operands` (ops/precision.py), but for 'blocked', which multiplies in the
inputs' format.
Sources: Katharopoulos et al., "Transformers are RNNs", 2020; Dao et al.,
"FlashAttention", 2022.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from rnn_jax import shapes
from rnn_jax.ops import attention_blocked
from rnn_jax.ops import pairs

IMPLS = {
  'linear': ('auto', 'pairs', 'state'),
  'softmax': ('auto', 'pairs', 'blocked'),
}  # by weights
# On a CPU 256 took less time than 64 and 128, for rows of 65 to 1024.
BLOCK = 256  # queries, and keys, that meet at a time
SHORT = 256  # softmax: rows up to here take less time with all scores at once


@dataclasses.dataclass(frozen=True)
class Options:
  """How to attend.

  Attributes:
    weights: one of pairs.WEIGHTS.
    impl: one of the weights' IMPLS. A named one never falls back to another.
    block: most queries and keys of a block of 'blocked'. The result doesn't
      depend on it.
    operands: format of the factors, but for 'blocked'.
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
  """Has each step read all of its row.

  Args:
    q_BxLxHxK: what is looked for.
    k_BxLxHxK: what it is compared with.
    v_BxLxHxP: what it reads.
    options: Options.

  Returns:
    y_BxLxHxP in v's dtype.

  Raises:
    ValueError: shapes disagree, or `options` has weights that don't exist, an
      impl that these weights lack, or blocks of no steps.
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
  state_BxHxKxP = pairs.product(k, v, (0, 0), operands)
  return pairs.product(q, state_BxHxKxP, (1, 0), operands).swapaxes(1, 2)


def _block(length, most):
  """Steps of equal blocks: the last one isn't filled up with many zeros."""
  return -(-length // -(-length // most))


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
