"""Attention against a loop in float64 written from the equation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import attention
from rnn_jax.ops.attention import ring as attention_ring

pytestmark = pytest.mark.slow

CLOSE = 1e-6  # measured: 3.6e-7, through the cache 4.8e-7
B, L, H, K, P = 3, 11, 2, 4, 3
BASE = 50.0
FULL = 30
# Few keys at a time: the first block that a query goes over may hold none.
FORMS = {
  'exact': attention.Options('exact', BASE),
  'blocked': attention.Options('blocked', BASE, queries=4, keys=3),
  'blocked, all keys': attention.Options('blocked', BASE, queries=2),
  'exact, top 2': attention.Options('exact', BASE, top_k=2),
  'blocked, top 2': attention.Options('blocked', BASE, top_k=2, queries=4),
}
# Each form once, and the blocks with windows of all kinds.
CASES = pytest.mark.parametrize(
  ('form', 'window'),
  ((*((form, 4) for form in FORMS), ('blocked', 1), ('blocked', FULL))),
)

attend = jax.jit(attention.attend, static_argnames='options')


def oracle(q, k, v, starts, window, base=BASE, top_k=0, rotated=None):
  """y from an empty cache, a query at a time."""
  q, k, v = (np.float64(x) for x in (q, k, v))
  k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
  y = np.zeros(v.shape)
  for b, t, h in np.ndindex(y.shape[:3]):
    begin = max([s for s in range(t + 1) if starts[b, s]] or [0])
    seen = np.arange(max(begin, t - window), t + 1)
    turned = turn(k[b, seen, h], seen - t, base, rotated)
    scores = turned @ q[b, t, h] / np.sqrt(q.shape[-1])
    kept = np.argsort(-scores)[: top_k or None]
    weights = np.exp(scores[kept] - scores[kept].max())
    y[b, t, h] = weights / weights.sum() @ v[b, seen[kept], h]
  return y


def turn(x, position, base, rotated=None):
  """Keys NxK turned back by their ages; `base` 0 turns nothing."""
  x, rest = np.split(x, [rotated or x.shape[1]], 1)
  half = x.shape[1] // 2
  speed = base ** (-np.arange(half) / half) if base else np.zeros(half)
  pairs = (x[:, :half] + 1j * x[:, half:]) * np.exp(
    1j * position[:, None] * speed
  )
  return np.concatenate([pairs.real, pairs.imag, rest], 1)


def draw(length=L, seed=0, queries=H):
  rng = np.random.default_rng(seed)
  q, k, v = (
    rng.normal(size=(B, length, heads, n)).astype(np.float32)
    for heads, n in ((queries, K), (H, K), (H, P))
  )
  starts = np.zeros((B, length), np.int32)
  starts[1, 0] = 1
  starts[2, [length // 3, length // 2]] = 1
  return q, k, v, starts


def empty(window):
  return attention_ring.init_cache(B, window, H, K, P)


@functools.cache
def program(form, window):
  """A compiled function: (gradients, (cache, y)).

  Its arguments: q, k, v, starts and the gradient of y.
  """

  def loss(q, k, v, starts, cotangent):
    out = attention.attend(empty(window), q, k, v, FORMS[form], starts)
    return jnp.sum(cotangent * out[1].astype(jnp.float32)), out

  return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))


@CASES
def test_equals_the_loop(form, window):
  *qkv, starts = draw()
  _, (_, got) = program(form, window)(*qkv, starts, cotangent())
  want = oracle(*qkv, starts, window, top_k=FORMS[form].top_k)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


def test_equals_the_loop_without_positions():
  *qkv, starts = draw()
  _, got = attend(empty(4), *qkv, starts_BxL=starts)
  want = oracle(*qkv, starts, 4, base=0)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


def split(options, window, bounds, *qkv, starts=None):
  """The last cache and y of parts that hand the cache on."""
  cache, parts = empty(window), []
  for begin, end in zip(bounds, bounds[1:], strict=False):
    *now, part_starts = (
      x if x is None else x[:, begin:end] for x in (*qkv, starts)
    )
    cache, y = attend(cache, *now, options, part_starts)
    parts.append(y)
  return cache, jnp.concatenate(parts, 1)


@pytest.mark.parametrize(
  ('form', 'window', 'resets'),
  (
    ('exact', 4, True),
    ('blocked', 1, False),
  ),
)
def test_any_split_equals_the_whole(form, window, resets):
  *qkv, starts = draw()
  if resets:
    _, (last, whole) = program(form, window)(*qkv, starts, cotangent())
  else:
    starts = None
    last, whole = attend(empty(window), *qkv, FORMS[form])
  for bounds in (0, 5, 6, 11), range(12):
    cache, parts = split(FORMS[form], window, bounds, *qkv, starts=starts)
    np.testing.assert_allclose(parts, whole, rtol=0, atol=CLOSE)
    for a, b in zip(cache, last, strict=True):
      np.testing.assert_array_equal(a, b)


@functools.cache
def reference_gradients(window, top_k):
  """Those of all pairs with a mask, by autodiff; see the next test."""
  *qkv, starts = draw()
  weights = cotangent()

  def loss(*x):
    return jnp.sum(weights * plain(*x, starts, window, top_k))

  return jax.jit(jax.grad(loss, (0, 1, 2)))(*qkv)


def plain(q, k, v, starts, window, top_k):
  number = np.cumsum(starts, 1)
  apart = np.arange(L)[:, None] - np.arange(L)
  seen = (apart >= 0) & (apart <= window)
  seen = seen & (number[:, :, None] == number[:, None])
  q, k = (
    attention._rotated(x, np.arange(L)[None], FORMS['exact']) for x in (q, k)
  )
  return attention._weigh(q, k, v, seen, top_k)


def cotangent():
  return np.random.default_rng(1).normal(size=(B, L, H, P))


@pytest.mark.parametrize('top_k', (0, 2))
def test_the_reference_gradients_are_finite_differences(top_k):
  *qkv, starts = draw()
  rng, step = np.random.default_rng(2), 1e-6
  for n, slopes in enumerate(reference_gradients(4, top_k)):
    way = rng.normal(size=qkv[n].shape)
    up, down = (
      oracle(
        *qkv[:n], qkv[n] + size * way, *qkv[n + 1 :], starts, 4, top_k=top_k
      )
      for size in (step, -step)
    )
    want = np.sum(cotangent() * (up - down)) / (2 * step)
    np.testing.assert_allclose(np.sum(slopes * way), want, rtol=1e-5, atol=1e-5)


@CASES
def test_gradients_equal_those_of_all_pairs(form, window):
  *qkv, starts = draw()
  got, _ = program(form, window)(*qkv, starts, cotangent())
  want = reference_gradients(window, FORMS[form].top_k)
  for a, b in zip(got, want, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)


def test_gradients_go_through_the_cache():
  *qkv, starts = draw()
  form = FORMS['blocked, top 2']  # after a past, 'exact' is 'blocked'

  def loss(*x):
    cache, y = split(form, 4, (0, 5, 6, 11), *x, starts=starts)
    return jnp.sum(cotangent() * y), (cache, y)

  run = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
  got, (cache, parts) = run(*qkv)
  want = reference_gradients(4, form.top_k)
  for a, b in zip(got, want, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)
  whole = program('blocked, top 2', 4)
  _, (last, y) = whole(*qkv, starts, cotangent())
  np.testing.assert_allclose(parts, y, rtol=0, atol=CLOSE)
  for a, b in zip(cache, last, strict=True):
    np.testing.assert_array_equal(a, b)


@functools.cache
def grouped():
  """(inputs, weights of y, y, [(a way of q, k or v, the slope along it)])."""
  *qkv, starts = draw(queries=3 * H)
  weights = np.random.default_rng(1).normal(size=(B, L, 3 * H, P))

  def y(*inputs):
    return oracle(*inputs, starts, 4, rotated=2)

  rng, step, slopes = np.random.default_rng(2), 1e-6, []
  for n, x in enumerate(qkv):
    way = rng.normal(size=x.shape)
    up, down = (
      y(*qkv[:n], x + size * way, *qkv[n + 1 :]) for size in (step, -step)
    )
    slopes.append((way, np.sum(weights * (up - down)) / (2 * step)))
  return (*qkv, starts), weights, y(*qkv), slopes


@pytest.mark.parametrize('impl', ('exact', 'blocked'))
def test_queries_share_keys_and_some_channels_are_rotated(impl):
  (*qkv, starts), weights, want, along = grouped()
  options = attention.Options(impl, BASE, rotated=2, queries=4, keys=3)

  def loss(*x):
    out = attention.attend(empty(4), *x, options, starts)
    return jnp.sum(weights * out[1]), out

  run = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
  slopes, (last, got) = run(*qkv)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)
  assert last.k_BxWxHxK.shape == (B, 4, H, K)
  if impl == 'exact':  # a single step is the same in each form
    cache, parts = split(options, 4, range(12), *qkv, starts=starts)
    np.testing.assert_allclose(parts, want, rtol=0, atol=CLOSE)
    for a, b in zip(cache, last, strict=True):
      np.testing.assert_array_equal(a, b)
  for slope, (way, rise) in zip(slopes, along, strict=True):
    np.testing.assert_allclose(np.sum(slope * way), rise, rtol=1e-5, atol=1e-5)


def slopes(form, window, b, *inputs):
  """The gradients of y[b, t, 0, 0] by q, k and v, for each t."""
  steps = []
  for t in range(L):
    one = np.zeros((B, L, H, P))
    one[b, t, 0, 0] = 1
    steps.append(program(form, window)(*inputs, one)[0])
  return [np.stack(x) for x in zip(*steps, strict=True)]


@pytest.mark.parametrize('form', ('exact', 'blocked, all keys'))
def test_a_step_sees_only_its_window_and_its_document(form):
  *qkv, starts = draw()
  begin = [0, L // 3, L // 2]
  for by in slopes(form, 4, 2, *qkv, starts)[1:]:
    for t in range(L):
      first = max(t - 4, *(s for s in begin if s <= t))
      if by.shape[-1] == K and first == t:
        continue  # a softmax over one key does not depend on it
      seen = np.flatnonzero(by[t, 2].any((-2, -1)))
      assert seen.tolist() == [*range(first, t + 1)]
    assert not by[:, :2].any()


@pytest.mark.parametrize('form', ('exact, top 2', 'blocked, top 2'))
def test_only_keys_with_the_highest_scores_get_gradients(form):
  q, k, v, starts = draw()
  by = slopes(form, 4, 0, q, k, v, 0 * starts)[2][:, 0, :, 0, 0]
  for t in range(L):
    first = max(t - 4, 0)
    seen = np.arange(first, t + 1)
    turned = turn(k[0, seen, 0], seen - t, BASE)
    best = first + np.argsort(-(turned @ q[0, t, 0]))[:2]
    assert np.flatnonzero(by[t]).tolist() == sorted(best)


@pytest.mark.parametrize('impl', ('exact', 'blocked'))
def test_ties_with_the_last_key_count_as_well(impl):
  q = np.ones((B, 4, H, K), np.float32)
  k = q * np.array([2.0, 1.0, 1.0, 0.0], np.float32)[:, None, None]
  v = np.random.default_rng(0).normal(size=(B, 4, H, P)).astype(np.float32)
  weights = np.exp([2.0, 1.0, 1.0])  # of scores K / sqrt(K) = 2 apart
  weights = weights**2 / np.sum(weights**2)
  want = np.einsum('s,bshp->bhp', weights, v[:, :3])
  options = attention.Options(impl, top_k=2)
  _, y = attend(empty(FULL), q, k, v, options)
  np.testing.assert_allclose(y[:, 3], want, rtol=0, atol=CLOSE)
  if impl == 'blocked':
    return  # a single step is the same in each form
  _, steps = split(options, FULL, range(5), q, k, v)
  np.testing.assert_allclose(steps, y, rtol=0, atol=CLOSE)


@pytest.mark.parametrize('form', ('exact', 'blocked'))
def test_large_scores_leave_everything_finite(form):
  *qkv, starts = draw()
  large = (1e3 * x for x in qkv)
  gradients, _ = program(form, 4)(*large, starts, np.ones((B, L, H, P)))
  assert all(np.isfinite(x).all() for x in gradients)


@pytest.mark.parametrize(
  ('form', 'dtype', 'length'),
  (
    ('exact', jnp.bfloat16, L),
    pytest.param('blocked', jnp.float16, L, marks=pytest.mark.float16),
    ('blocked', jnp.bfloat16, 1),
  ),
)
def test_the_state_is_float32_and_the_output_has_the_input_s_dtype(
  form, dtype, length
):
  *qkv, starts = draw(length)
  weights = cotangent()[:, :length]

  starts = None if length == 1 else starts
  run = program(form, 4)
  rounded = [x.astype(dtype) for x in qkv]
  got, (cache, y) = run(*rounded, starts, weights)
  assert {x.dtype for x in (y, *got)} == {np.dtype(dtype)}
  assert {x.dtype for x in cache} == {np.dtype('float32')}
  want = oracle(*qkv, np.zeros((B, 1)) if starts is None else starts, 4)
  digits = float(jnp.finfo(dtype).eps)
  assert abs(np.float32(y) - want).max() < 3 * digits  # measured: 1.3
  for a, b in zip(got, run(*qkv, starts, weights)[0], strict=True):
    assert np.abs(np.float32(a) - b).max() < 3 * digits  # measured: 1.1


@functools.cache
def temporaries(length, options, window=0):
  """XLA's temporaries of forward and backward, bytes."""
  x = jax.ShapeDtypeStruct((1, length, H, 16), jnp.float32)

  def loss(q, k, v):
    cache = attention_ring.init_cache(1, window or length, H, 16, 16)
    return attention.attend(cache, q, k, v, options)[1].sum()

  program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(x, x, x).compile()
  return program.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(('window', 'top_k'), ((0, 0), (0, 8)))
def test_memory_is_linear_in_the_length(window, top_k):
  options = attention.Options('blocked', BASE, top_k=top_k, queries=64)
  short, long = (temporaries(n, options, window) for n in (2048, 8192))
  assert long < 4.5 * short


def test_blocks_save_the_memory_of_all_scores():
  exact, blocked = (
    temporaries(2048, attention.Options(impl, BASE, queries=64))
    for impl in ('exact', 'blocked')
  )
  assert exact > 2 * H * 2048**2 * 4  # weights and their gradients
  assert blocked < exact / 40  # measured: 1/61


@pytest.mark.parametrize(('length', 'all_at_once'), ((128, True), (129, False)))
def test_long_rows_are_computed_in_blocks(length, all_at_once):
  x = jnp.zeros((1, length, H, K))
  cache = attention_ring.init_cache(1, 2 * length, H, K, K)
  jaxpr = str(jax.make_jaxpr(attention.attend)(cache, x, x, x))
  # The other branch of 'exact', after a past, has 3 L keys.
  assert (f'f32[1,{H},{length},{length}]' in jaxpr) == all_at_once
  assert (f'f32[1,{H},{length},{3 * length}]' in jaxpr) == all_at_once


def test_invalid_inputs_are_refused():
  q, k, v, _ = draw()
  with pytest.raises(ValueError, match='L=0'):
    attention.attend(empty(4), q[:, :0], k[:, :0], v[:, :0])
  with pytest.raises(ValueError, match='K=3: rotary'):
    cache = attention_ring.init_cache(B, 4, H, 3, P)
    attention.attend(cache, q[..., :3], k[..., :3], v, FORMS['exact'])
  with pytest.raises(ValueError, match='rotated=3: rotary positions need an'):
    attention.attend(empty(4), q, k, v, attention.Options(base=9.0, rotated=3))
  with pytest.raises(ValueError, match='rotated=6: there are K=4 channels'):
    attention.attend(empty(4), q, k, v, attention.Options(base=9.0, rotated=6))
  with pytest.raises(ValueError, match="H=3: the G=2 heads of k_BxLxGxK don't"):
    attention.attend(empty(4), q[:, :, [0, 0, 1]], k, v)
  with pytest.raises(ValueError, match='starts_BxL has shape'):
    attention.attend(empty(4), q, k, v, starts_BxL=np.zeros((B, 1)))
  with pytest.raises(ValueError, match='key width'):
    attention.attend(empty(4), q, k[..., :2], v)
  with pytest.raises(ValueError, match="impl='flash': choose one of"):
    attention.attend(empty(4), q, k, v, attention.Options('flash'))
  with pytest.raises(NotImplementedError, match='top_k=2 needs'):
    attention.attend(empty(4), q, k, v, attention.Options('cudnn', top_k=2))
  with pytest.raises(
    NotImplementedError, match="a GPU, not cpu: use 'blocked'"
  ):
    attention.attend(empty(4), q, k, v, attention.Options('cudnn'))
