"""Attention over earlier outputs against a loop in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import luong_attention

CLOSE = 1e-6  # measured: 3.3e-7

attend = jax.jit(luong_attention.attend)


def oracle(query_BxLxE, y_BxLxE, starts_BxL, window):
  """From an empty cache: softmax over the steps of the window, one by one."""
  query, y = np.float64(query_BxLxE), np.float64(y_BxLxE)
  context = np.zeros(y.shape)
  for b, t in np.ndindex(starts_BxL.shape):
    begin = max([s for s in range(t + 1) if starts_BxL[b, s]] or [0])
    past = y[b, max(begin, t - window + 1) : t + 1]
    share = np.exp(past @ query[b, t])
    context[b, t] = share / share.sum() @ past
  return context


def draw(L=9, seed=0):
  rng = np.random.default_rng(seed)
  query, y = (rng.normal(size=(3, L, 4)).astype(np.float32) for _ in range(2))
  starts = np.zeros((3, L), np.int32)
  starts[1, 0] = 1
  starts[2, [L // 3, L // 2]] = 1
  return query, y, starts


@pytest.mark.parametrize('window', (1, 2, 4, 9, 30))
def test_equals_the_loop(window):
  query, y, starts = draw()
  cache = luong_attention.init_cache(3, window, 4)
  _, got = attend(cache, query, y, starts)
  want = oracle(query, y, starts, window)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


@pytest.mark.parametrize('bounds', ((0, 4, 9), range(10)))
@pytest.mark.parametrize('window', (1, 4, 30))
def test_parts_and_single_steps_equal_one_pass(window, bounds):
  query, y, starts = draw()
  cache = luong_attention.init_cache(3, window, 4)
  last, whole = attend(cache, query, y, starts)
  parts = []
  for begin, end in zip(bounds, bounds[1:], strict=False):
    now = slice(begin, end)
    cache, context = attend(cache, query[:, now], y[:, now], starts[:, now])
    parts.append(context)
  np.testing.assert_allclose(
    np.concatenate(parts, 1), whole, rtol=0, atol=CLOSE
  )
  assert np.array_equal(cache.valid_BxW, last.valid_BxW)
  seen = last.valid_BxW[..., None] > 0
  assert np.array_equal(cache.y_BxWxE * seen, last.y_BxWxE * seen)


def test_a_step_sees_its_window_and_its_document_alone():
  query, y, starts = draw()
  cache = luong_attention.init_cache(3, 3, 4)

  def context(y):
    return attend(cache, query, y, starts)[1][2, :, 0]

  slopes = jax.jit(jax.jacobian(context))(jnp.asarray(y))[:, 2].any(-1)
  seen = np.tril(np.ones((9, 9))) - np.tril(np.ones((9, 9)), -3)
  seen[3:, :3] = 0
  seen[4:, :4] = 0
  assert np.array_equal(slopes, seen)


def test_large_scores_and_an_empty_cache_leave_gradients_finite():
  query, y, starts = draw()
  cache = luong_attention.init_cache(3, 4, 4)

  def loss(query, y):
    return attend(cache, query, y, starts)[1].sum()

  slopes = jax.jit(jax.grad(loss, (0, 1)))(1e4 * query, 1e4 * y)
  assert all(np.isfinite(x).all() for x in slopes) and slopes[1].any()


def test_the_context_has_the_outputs_format_and_the_cache_float32():
  query, y, _ = draw()
  cache = luong_attention.init_cache(3, 4, 4)
  cache, context = attend(cache, query, y.astype(jnp.bfloat16))
  assert context.dtype == jnp.bfloat16
  assert cache.y_BxWxE.dtype == cache.valid_BxW.dtype == jnp.float32
