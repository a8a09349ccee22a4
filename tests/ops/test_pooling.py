"""Pooling against NumPy loops, with resets and in parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import pooling

B, L, D = 3, 11, 4
pool = jax.jit(pooling.pool, static_argnames='kind')
add_up = jax.jit(pooling.add_up)


def make():
  rng = np.random.default_rng(0)
  x = rng.standard_normal((B, L, D)).astype(np.float32) - 2.0
  starts = (rng.random((B, L)) < 0.25).astype(np.int32)
  starts[:, 0] = 1
  return x, starts


def oracle(x, starts, kind):
  """Pools each step's document from its start on."""
  y = np.zeros((*x.shape[:2], 3 * D if kind == 'concat' else D))
  for b in range(x.shape[0]):
    for t in range(x.shape[1]):
      begin = max(s for s in range(t + 1) if starts[b, s] or s == 0)
      text = np.float64(x[b, begin : t + 1])
      parts = {'last': text[-1], 'max': text.max(0), 'mean': text.mean(0)}
      parts['concat'] = np.concatenate([*parts.values()])
      y[b, t] = parts[kind]
  return y


@pytest.mark.parametrize('kind', pooling.KINDS)
def test_equals_numpy_with_resets(kind):
  x, starts = make()
  _, y = pool(pooling.init_state(B, D), x, kind, starts)
  np.testing.assert_allclose(y, oracle(x, starts, kind), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize('kind', pooling.KINDS)
def test_two_parts_equal_the_whole(kind):
  x, starts = make()
  starts[:, 4:] = 0
  _, whole = pool(pooling.init_state(B, D), x, kind, starts)
  state, first = pool(pooling.init_state(B, D), x[:, :4], kind, starts[:, :4])
  _, second = pool(state, x[:, 4:], kind)
  joined = jnp.concatenate([first, second], 1)
  np.testing.assert_allclose(joined, whole, rtol=2e-6, atol=1e-6)


def test_a_sum_restarts_where_a_text_begins():
  x, starts = make()
  _, mean = pool(pooling.init_state(B, D), x, 'mean', starts)
  last, total = add_up(np.zeros((B, D), np.float32), x, starts)
  steps = np.arange(L)[None]
  begin = np.maximum.accumulate(np.where(starts > 0, steps, 0), 1)
  counts = (steps - begin + 1)[..., None]
  np.testing.assert_allclose(total, mean * counts, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(last, total[:, -1])
  starts[:, 4:] = 0
  state, first = add_up(last * 0, x[:, :4], starts[:, :4])
  _, second = add_up(state, x[:, 4:])
  _, whole = add_up(last * 0, x, starts)
  joined = jnp.concatenate([first, second], 1)
  np.testing.assert_allclose(joined, whole, rtol=2e-6, atol=1e-5)


def test_an_unknown_kind_is_named():
  with pytest.raises(ValueError, match="kind='sum': choose one of"):
    pooling.pool(pooling.init_state(B, D), make()[0], 'sum')
