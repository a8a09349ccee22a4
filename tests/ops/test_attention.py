"""Attention against a loop in float64 written from the equation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import attention
from tests import loops

CLOSE = 1e-6  # measured: 2.1e-7 against the loop
B, L, H, K, P = 3, 11, 2, 4, 3
BASE = 50.0
FULL = 30

attend = jax.jit(
  functools.partial(attention.attend, base=BASE), static_argnames='block'
)


def oracle(q, k, v, starts, window, base=BASE):
  """y from an empty cache, a query at a time."""
  q, k, v = (np.float64(x) for x in (q, k, v))
  y = np.zeros(v.shape)
  for b, t, h in np.ndindex(y.shape[:3]):
    begin = max([s for s in range(t + 1) if starts[b, s]] or [0])
    seen = np.arange(max(begin, t - window), t + 1)
    turned = np.stack([turn(k[b, s, h], s - t, base) for s in seen])
    share = np.exp(turned @ q[b, t, h] / np.sqrt(q.shape[-1]))
    y[b, t, h] = share / share.sum() @ v[b, seen, h]
  return y


def turn(x, position, base):
  """One key turned back by its age; `base` 0 turns nothing."""
  half = len(x) // 2
  angle = position * base ** (-np.arange(half) / half) if base else 0.0
  pairs = (x[:half] + 1j * x[half:]) * np.exp(1j * angle)
  return np.concatenate([pairs.real, pairs.imag])


def draw(length=L, seed=0):
  rng = np.random.default_rng(seed)
  q, k, v = (
    rng.normal(size=(B, length, H, n)).astype(np.float32) for n in (K, K, P)
  )
  starts = np.zeros((B, length), np.int32)
  starts[1, 0] = 1
  starts[2, [length // 3, length // 2]] = 1
  return q, k, v, starts


def empty(window):
  return attention.init_cache(B, window, H, K, P)


@pytest.mark.parametrize(
  ('window', 'block'), ((1, 4), (2, 1), (2, 128), (5, 4), (FULL, 4))
)
def test_equals_the_loop(window, block):
  *qkv, starts = draw()
  _, got = attend(empty(window), *qkv, starts_BxL=starts, block=block)
  want = oracle(*qkv, starts, window)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


def test_equals_the_loop_without_positions():
  *qkv, starts = draw()
  _, got = attention.attend(empty(4), *qkv, starts_BxL=starts)
  want = oracle(*qkv, starts, 4, base=0)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


@pytest.mark.parametrize('bounds', ((0, 4, 5, 11), range(12)))
@pytest.mark.parametrize('window', (1, 4, FULL))
@pytest.mark.parametrize('resets', (False, True))
def test_any_split_equals_the_whole(window, bounds, resets):
  *qkv, starts = draw()

  def run(cache, part):
    told = starts[:, part] if resets else None
    q, k, v = (x[:, part] for x in qkv)
    return attend(cache, q, k, v, starts_BxL=told, block=2)

  last, whole = run(empty(window), slice(None))
  cache, parts = empty(window), []
  for begin, end in zip(bounds, bounds[1:], strict=False):
    cache, y = run(cache, slice(begin, end))
    parts.append(y)
  parts = np.concatenate(parts, 1)
  np.testing.assert_allclose(parts, whole, rtol=0, atol=CLOSE)
  for a, b in zip(cache, last, strict=True):
    np.testing.assert_array_equal(a, b)


def test_a_ring_goes_round_many_times():
  *qkv, starts = draw(length=20)
  cache, ys = empty(3), []
  for t in range(20):
    q, k, v = (x[:, t : t + 1] for x in qkv)
    cache, y = attend(cache, q, k, v)
    ys.append(y)
    assert np.all(cache.steps_B < 6)
  want = oracle(*qkv, 0 * starts, 3)
  np.testing.assert_allclose(np.concatenate(ys, 1), want, rtol=0, atol=CLOSE)
  held = np.sort(np.asarray(cache.k_BxWxHxK), 1)
  np.testing.assert_array_equal(held, np.sort(qkv[1][:, -3:], 1))


@pytest.mark.parametrize('window', (2, FULL))
def test_gradients_equal_those_of_the_plain_form(window):
  *qkv, starts = draw()
  weights = np.random.default_rng(1).normal(size=(B, L, H, P))

  def plain(q, k, v):
    """The same by a mask over all pairs; autodiff goes through it."""
    number = np.cumsum(starts, 1)
    apart = np.arange(L)[:, None] - np.arange(L)
    seen = (apart >= 0) & (apart <= window)
    seen = seen & (number[:, :, None] == number[:, None])
    at = (np.arange(L)[None],) * 2
    return attention._weigh(q, k, v, seen, at, BASE)

  def blocks(q, k, v):
    cache = empty(window)
    return attend(cache, q, k, v, starts_BxL=starts, block=4)[1]

  got, want = (
    jax.jit(jax.grad(lambda *x, f=f: jnp.sum(weights * f(*x)), (0, 1, 2)))(*qkv)
    for f in (blocks, plain)
  )
  for a, b in zip(got, want, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)


def test_the_oracle_of_the_gradients_is_the_equation():
  *qkv, starts = draw()
  at = (np.arange(L)[None],) * 2
  seen = np.tril(np.ones((1, L, L), bool))
  got = attention._weigh(*qkv, seen, at, BASE)
  want = oracle(*qkv, 0 * starts, FULL)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


def test_a_step_sees_its_window_and_its_document_alone():
  *qkv, starts = draw()
  begin = [0, L // 3, L // 2]

  def y(k, v):
    _, y = attend(empty(2), qkv[0], k, v, starts_BxL=starts, block=4)
    return y[2, :, 0, 0]

  for slopes in jax.jit(jax.jacrev(y, (0, 1)))(*qkv[1:]):
    for t in range(L):
      first = max(t - 2, *(s for s in begin if s <= t))
      if slopes.shape[-1] == K and first == t:
        continue  # a softmax over one key does not depend on it
      seen = np.flatnonzero(np.asarray(slopes)[t, 2].any((-2, -1)))
      assert seen.tolist() == [*range(first, t + 1)]
    assert not slopes[:, :2].any()


def temporaries(length, window):
  """XLA's temporaries of forward and backward, bytes."""
  x = jax.ShapeDtypeStruct((1, length, H, 16), jnp.float32)

  def loss(q, k, v):
    cache = attention.init_cache(1, window, H, 16, 16)
    return attention.attend(cache, q, k, v, base=BASE, block=64)[1].sum()

  program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(x, x, x).compile()
  return program.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize('window', (128, None))
def test_memory_is_linear_in_the_length(window):
  short, long = (temporaries(n, window or n) for n in (2048, 8192))
  assert long < 4.5 * short


def test_the_work_of_a_window_is_that_of_its_blocks():
  x = jnp.zeros((1, 1024, H, 16))
  jaxpr = jax.make_jaxpr(
    lambda x: attention._in_blocks(
      x, x, x, jnp.zeros((1, 1024), jnp.int32), attention._Options(96, 32, 0.0)
    )
  )(x)
  assert '32,128]' in str(jaxpr)  # queries x keys of a block's scores
  assert '32,1024]' not in str(jaxpr)
  assert 32 in loops.lengths(jaxpr.jaxpr)  # blocks


def test_large_scores_leave_everything_finite():
  *qkv, starts = draw()

  def loss(*x):
    return attend(empty(4), *x, starts_BxL=starts)[1].sum()

  slopes = jax.jit(jax.grad(loss, (0, 1, 2)))(*(1e3 * x for x in qkv))
  assert all(np.isfinite(x).all() for x in slopes)


@pytest.mark.parametrize('length', (1, L))
def test_formats(length):
  q, k, v, _ = draw(length)
  given = (jnp.asarray(x, jnp.bfloat16) for x in (q, k, v))
  cache, y = attend(empty(4), *given)
  assert y.dtype == jnp.bfloat16
  assert {x.dtype for x in cache} == {np.dtype('float32')}
  _, exact = attend(empty(4), q, k, v)
  np.testing.assert_allclose(np.float32(y), exact, atol=0.03)  # measured: .008


def test_what_cannot_be_computed_is_refused():
  q, k, v, _ = draw()
  with pytest.raises(ValueError, match='L=0'):
    attention.attend(empty(4), q[:, :0], k[:, :0], v[:, :0])
  with pytest.raises(ValueError, match='K=3: rotary'):
    cache = attention.init_cache(B, 4, H, 3, P)
    attention.attend(cache, q[..., :3], k[..., :3], v, base=BASE)
  with pytest.raises(ValueError, match='starts_BxL has shape'):
    attention.attend(empty(4), q, k, v, starts_BxL=np.zeros((B, 1)))
  with pytest.raises(ValueError, match='key width'):
    attention.attend(empty(4), q, k[..., :2], v)
