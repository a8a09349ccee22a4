"""Rows seen whole, in every form, against sums over all pairs in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops.attention import row as row_attention
from tests.support import close

B, H, K, P = 2, 2, 4, 3
CLOSE = 2e-6  # measured: 2.4e-7 of the largest number of each array
FORMS = [
  (weights, impl)
  for weights, impls in row_attention.IMPLS.items()
  for impl in impls
]


def draw(length):
  """q, k, v and the gradient of y in float64."""
  rng = np.random.default_rng(length)
  return [rng.normal(size=(B, length, H, width)) for width in (K, K, P, P)]


def dense(q, k, v, dy, weights):
  """y and the gradients of q, k, v, from all scores at once."""
  p = np.einsum('blhk,bshk->bhls', q, k)
  dp = dx = np.einsum('blhp,bshp->bhls', dy, v)
  if weights == 'softmax':
    p = np.exp(p * K**-0.5)
    p /= p.sum(-1, keepdims=True)
    dx = p * (dp - np.sum(dp * p, -1, keepdims=True)) * K**-0.5
  return (
    np.einsum('bhls,bshp->blhp', p, v),
    np.einsum('bhls,bshk->blhk', dx, k),
    np.einsum('bhls,blhk->bshk', dx, q),
    np.einsum('bhls,blhp->bshp', p, dy),
  )


@functools.partial(jax.jit, static_argnames='options')
def both_ways(q, k, v, dy, options):
  run = functools.partial(row_attention.attend, options=options)
  y, back = jax.vjp(run, q, k, v)
  return y, *back(dy)


@pytest.mark.parametrize(('weights', 'impl'), FORMS)
def test_each_form_is_the_sum_over_the_row(weights, impl):
  options = row_attention.Options(weights, impl, block=4)
  rows = [draw(length) for length in (1, 7, 12)]
  run = jax.jit(lambda rows: [both_ways(*row, options) for row in rows])
  for got, given in zip(run(jax.tree.map(np.float32, rows)), rows, strict=True):
    close.check(got, dense(*given, weights), CLOSE, floor=1)


def temporaries(length, weights, impl):
  like = [jax.ShapeDtypeStruct((1, length, 1, 8), 'float32')] * 4
  options = row_attention.Options(weights, impl, block=64)
  compiled = both_ways.lower(*like, options).compile()
  return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
  ('weights', 'impl', 'least', 'most'),
  (  # measured: 2 to 4.01 by turns, and 1.17 of blocks
    ('linear', 'pairs', 3.5, 4.5),
    ('linear', 'state', 0, 2.1),
    ('softmax', 'pairs', 3.5, 4.5),
    ('softmax', 'blocked', 0, 2.1),
    ('linear', 'auto', 0, 2.1),
    ('softmax', 'auto', 0, 2.1),
  ),
)
def test_memory_is_linear_in_the_length(weights, impl, least, most):
  short, long = (temporaries(n, weights, impl) for n in (1024, 2048))
  assert least < long / short < most


def test_bad_options_are_named():
  given = [jnp.zeros(x.shape) for x in draw(3)[:3]]
  for options, message in (
    ({'weights': 'relu'}, "weights='relu': choose one of"),
    ({'impl': 'blocked'}, "impl='blocked': weights='linear' has"),
    ({'weights': 'softmax', 'impl': 'state'}, "weights='softmax' has"),
    ({'block': 0}, 'block=0: give 1 or more'),
  ):
    with pytest.raises(ValueError, match=message):
      row_attention.attend(*given, row_attention.Options(**options))
  with pytest.raises(ValueError, match='heads .H. is 2'):
    row_attention.attend(*given[:2], given[2][:, :, :1])
