"""Blocks against all pairs in float64; which blocks are gone over."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.ops.attention import blocked

B, H, K, P = 2, 2, 3, 5
CLOSE = 2e-6  # measured: 4.2e-7


def dense(line, dy):
  """y and the gradients of q, k, v, from all scores at once."""
  q, k, v, dy = (np.float64(x) for x in (*line[:3], dy))
  at = np.arange(k.shape[1])
  seen = at >= np.asarray(line.first_BxL)[..., None]
  seen = seen & (at <= at[-q.shape[1] :, None])
  root = K**-0.5
  x = np.einsum('blhk,bshk->bhls', q, k) * root
  x = np.where(seen[:, None], x, -np.inf)
  p = np.exp(x - x.max(-1, keepdims=True))
  p /= p.sum(-1, keepdims=True)
  dp = np.einsum('blhp,bshp->bhls', dy, v)
  dx = p * (dp - np.sum(dp * p, -1, keepdims=True)) * root
  return (
    np.einsum('bhls,bshp->blhp', p, v),
    np.einsum('bhls,bshk->blhk', dx, k),
    np.einsum('bhls,blhk->bshk', dx, q),
    np.einsum('bhls,blhp->bshp', p, dy),
  )


def draw(length, past=0, window=1000, first=None, seed=0):
  """A line and the gradient of y."""
  rng = np.random.default_rng(seed)
  shapes = ((length, K), (past + length, K), (past + length, P), (length, P))
  q, k, v, dy = (
    rng.normal(size=(B, n, H, width)).astype(np.float32) for n, width in shapes
  )
  if first is None:
    first = np.zeros((B, 1), int)
  mine = past + np.arange(length)[None]
  first = np.maximum(first, mine - window).astype(np.int32)
  return blocked.Line(q, k, v, np.broadcast_to(first, (B, length))), dy


@functools.partial(jax.jit, static_argnames='sizes')
def both_ways(line, dy, sizes):
  y, z = blocked.forward(line, sizes)
  return y, *blocked.backward(line, sizes, (y, z), dy)


@pytest.mark.slow
@hypothesis.settings(max_examples=5)
@hypothesis.given(
  st.integers(1, 20),
  st.integers(0, 9),
  st.integers(0, 25),
  st.integers(1, 8),
  st.integers(1, 9),
)
def test_blocks_of_any_size_equal_all_pairs(length, past, window, c, s):
  # The second row's document begins later: the first block has no key of it.
  first = np.array([[0], [past]])
  line, dy = draw(length, past, window, first)
  sizes = blocked.Sizes(min(c, length), min(s, past + length))
  got = both_ways(line, dy, sizes)
  for a, b in zip(got, dense(line, dy), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)


def turns(line, sizes):
  return blocked._query_blocks(line, sizes).visits.tolist()


@pytest.mark.parametrize(
  ('line', 'sizes', 'expected'),
  (
    (draw(16), (4, 4), [1, 2, 3, 4]),  # half of all pairs, and a half block
    (draw(16), (4, 8), [1, 1, 2, 2]),
    (draw(18), (4, 8), [1, 1, 2, 2, 3]),
    (draw(16, past=8), (4, 4), [3, 4, 5, 6]),
    (draw(16, window=4), (4, 4), [1, 2, 2, 2]),  # W and a block
    (draw(16, window=4), (4, 8), [1, 1, 1, 1]),
    (draw(16, past=8, first=np.array([[8], [8]])), (4, 4), [1, 2, 3, 4]),
    (draw(16, past=8, first=np.array([[8], [4]])), (4, 4), [2, 3, 4, 5]),
  ),
)
def test_a_block_visits_only_keys_that_it_sees(line, sizes, expected):
  assert turns(line[0], blocked.Sizes(*sizes)) == expected


def test_a_document_visits_no_block_of_the_previous_one():
  first = np.zeros((B, 16), int)
  first[:, 8:] = 8
  line, _ = draw(16, first=first)
  assert turns(line, blocked.Sizes(4, 4)) == [1, 2, 1, 2]


def test_keys_that_a_block_does_not_see_are_not_read():
  line, dy = draw(16, window=4)
  sizes = blocked.Sizes(4, 4)
  for at, touched in ((0, (0, 8)), (6, (4, 12)), (15, (12, 16))):
    v = np.array(line.v_BxSxHxP)
    v[:, at] = np.nan
    y, dq, *_ = both_ways(line._replace(v_BxSxHxP=v), dy, sizes)
    for x in (y, dq):
      touched_at = np.flatnonzero(np.isnan(x).any((0, 2, 3)))
      assert (
        touched_at[0] // 4 * 4,
        -(-(touched_at[-1] + 1) // 4) * 4,
      ) == touched


def test_the_highest_scores_are_kept():
  x = jnp.array([[3.0, 1.0, 2.0, 1.0], [-jnp.inf, 5.0, -jnp.inf, -jnp.inf]])
  assert blocked.keep_top(x, 2).tolist() == [
    [3.0, -np.inf, 2.0, -np.inf],
    [-np.inf, 5.0, -np.inf, -np.inf],
  ]
  assert blocked.keep_top(x, 3)[0].tolist() == x[0].tolist()  # a tie
  for count in (0, 4, 9):
    assert blocked.keep_top(x, count) is x
