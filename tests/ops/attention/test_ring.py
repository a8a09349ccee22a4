"""The ring holds the last W steps, each in its slot."""

import jax
import numpy as np
import pytest

from rnn_jax.ops.attention import ring as attention_ring

B, W, H, K = 2, 3, 1, 2


def steps(length):
  x = np.arange(1.0, B * length * H * K + 1, dtype=np.float32)
  return x.reshape(B, length, H, K)


def test_a_ring_wraps_around_many_times():
  x, cache = steps(20), attention_ring.init_cache(B, W, H, K, K)
  write_one = jax.jit(attention_ring.write_one)
  for t in range(20):
    now = x[:, t : t + 1]
    cache = write_one(cache, cache.steps_B.astype(int), now, -now)
    assert np.all(cache.steps_B < 2 * W)
    count = cache.steps_B.astype(int)
    held = min(t + 1, W)
    in_order = attention_ring.in_order(cache.k_BxWxHxK, count)[:, -held:]
    np.testing.assert_array_equal(in_order, x[:, t + 1 - held : t + 1])
    age = attention_ring.ages(count, W)
    assert age[0, t % W] == 1 and sorted(age[0].tolist()) == [1, 2, 3]
  np.testing.assert_array_equal(cache.v_BxWxHxP, -cache.k_BxWxHxK)


@pytest.mark.parametrize('length', (1, 2, 3, 7))
def test_many_steps_at_once_are_steps_one_by_one(length):
  x, one = steps(5 + length), attention_ring.init_cache(B, W, H, K, K)
  many = attention_ring.write(one, one.steps_B.astype(int), x[:, :5], x[:, :5])
  rest = x[:, 5:]
  many = attention_ring.write(many, many.steps_B.astype(int), rest, rest)
  for t in range(5 + length):
    now = x[:, t : t + 1]
    one = attention_ring.write_one(one, one.steps_B.astype(int), now, now)
  jax.tree.map(np.testing.assert_array_equal, many, one)


def test_steps_before_a_start_are_forgotten():
  x, empty = steps(5), attention_ring.init_cache(B, W, H, K, K)
  starts = np.zeros((B, 5), np.int32)
  starts[0, 3] = 1
  cache = attention_ring.write(empty, empty.steps_B.astype(int), x, x, starts)
  assert cache.steps_B.tolist() == [2, 5]
  np.testing.assert_array_equal(cache.k_BxWxHxK[0, :2], x[0, 3:])
  assert not cache.k_BxWxHxK[0, 2].any() and cache.k_BxWxHxK[1].all()


@pytest.mark.parametrize('length', (0, 2, 3, 7, 20))
def test_from_order_equals_writing_the_steps(length):
  x, empty = steps(max(length, W)), attention_ring.init_cache(B, W, H, K, K)
  zero = empty.steps_B.astype(int)
  wanted = empty
  if length:
    wanted = attention_ring.write(empty, zero, x[:, :length], -x[:, :length])
  last = np.roll(x, max(W - length, 0), 1)[:, -W:]  # in front: anything
  got = attention_ring.from_order(last, -last, zero + length)
  jax.tree.map(np.testing.assert_array_equal, got, wanted)


def test_a_window_of_zero_is_refused():
  with pytest.raises(ValueError, match='window=0: give 1 or more'):
    attention_ring.init_cache(B, 0, H, K, K)
