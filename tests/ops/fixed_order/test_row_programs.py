"""Programs of rows, against the same operations in NumPy, to the bit."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import fixed_order
from rnn_jax.ops.fixed_order import schedule
from tests.ops.fixed_order import test_fixed_order

pytestmark = pytest.mark.native
draw = test_fixed_order.draw
# Rows, and two axes of a row: also as many as rows, one, and several vectors.
SHAPES = ((1, 4, 5), (3, 3, 7), (5, 1, 40), (2, 6, 1), (4, 3, 33))


def elementwise(xp, x, y, w):
  z = (x + y) * w[None] - x / (2 + xp.abs(y)) - 1.5
  return -xp.maximum(z, y) + xp.sqrt(xp.abs(x)) + xp.minimum(x, 0.25) + z * z


def masks(xp, x, y, w):
  inside = (x > 0) & (y <= 0.5) | (x == y)
  return xp.where(~inside & (w[None] != x), x, 3.0), xp.where(
    inside, y, w[None]
  )


def layouts(xp, x, y, w):
  B, H, K = x.shape
  turned = x.transpose(0, 2, 1).reshape(B, H, K) - y  # of a copy
  halves = x.reshape(B, -1)[:, ::2], y[:, :1, ::-1]
  z = xp.broadcast_to(halves[1], x.shape) + turned
  return z.transpose(0, 2, 1), halves[0] * 2, w.T[None] * z.transpose(0, 2, 1)


def joins(xp, x, y, w):
  window = xp.concatenate([x, y[:, :1] * w[None, :1], y], 1)
  wide = xp.concatenate([y[..., :1], x * 3], 2)
  return window[:, 1:], window[:, :-1] + 1, wide.reshape(len(x), -1)


def maxima(xp, x, y, w):
  largest = xp.max(x * w[None], 2), xp.max(y, 1), xp.max(x - y, (1, 2))
  return *largest, y - largest[1][:, None]


def of_parameters(xp, x, y, w):
  """What no row changes, also of as many rows as the batch has."""
  scale = (w + 1) * w[:1]
  return x * scale[None] + xp.max(w) * y


FUNCTIONS = elementwise, masks, layouts, joins, maxima, of_parameters


def evaluated(run, w, *rows):
  """Returns run(jnp, *rows, w) by one program, and its text."""

  @jax.jit
  def whole(*rows):
    return fixed_order.evaluate(
      lambda *x: run(jnp, *x, w), *rows, rows=len(rows[0])
    )

  return whole(*rows), whole.lower(*rows).compile().as_text()


@pytest.mark.parametrize('run', FUNCTIONS)
@pytest.mark.parametrize('shape', SHAPES)
def test_operations_are_numpy_s_in_one_call(run, shape):
  x, y, w = draw(*shape), draw(*shape, seed=1), draw(*shape[1:], seed=2)
  x[0, 0, 0], y[-1, -1, -1] = 0, -0.0
  made, text = evaluated(run, jnp.asarray(w), x, y)
  wanted = run(np, x, y, w)
  for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(wanted), strict=True):
    np.testing.assert_array_equal(a, b)
  assert text.count('"rnn_jax_row_program"') == 1
  # XLA copies a result that is only another view of an input.
  fusions = [line for line in text.splitlines() if ' fusion(' in line]
  assert all('calls=%wrapped_copy' in line for line in fusions)


def test_nan_and_infinity():
  x = np.float32([[np.nan, 1, -np.inf, np.inf, 0]])
  y = np.float32([[1, np.nan, np.inf, np.inf, np.nan]])

  def run(xp, x, y, w):
    del w
    sums = xp.maximum(x, y), xp.minimum(x, y), x - y, xp.max(y, 1)
    return *sums, xp.where(x < y, x, 7.0), xp.where(x != y, x, 7.0)

  made, _ = evaluated(run, None, x, y)
  with np.errstate(invalid='ignore'):
    wanted = run(np, x, y, None)
  for a, b in zip(made, wanted, strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('N', test_fixed_order.LENGTHS)
@pytest.mark.parametrize('norm', [nn.RMSNorm, nn.LayerNorm])
def test_norms_are_those_of_float64(norm, N):
  x, scale, bias = 1 + draw(6, N), draw(N, seed=1), draw(N, seed=2)
  params = {'scale': scale}
  params |= {'bias': bias} if norm is nn.LayerNorm else {}
  run = functools.partial(norm(epsilon=1e-3).apply, {'params': params})
  y = fixed_order.evaluate(run, x, rows=6)
  x64 = np.float64(x)
  if norm is nn.LayerNorm:
    x64 = x64 - x64.mean(-1, keepdims=True)
  wanted = x64 / np.sqrt((x64**2).mean(-1, keepdims=True) + 1e-3) * scale
  wanted = wanted + bias if norm is nn.LayerNorm else wanted
  np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)
  test_fixed_order.check_bits(
    jax.jit(lambda x: fixed_order.evaluate(run, x, rows=len(x))), draw(64, N)
  )


def mixed(state, x, w):
  """A step: a short convolution, its gate, norm and next state."""
  inputs = jnp.concatenate([state, x[:, None]], 1)
  y = sum(w[n][None] * inputs[:, n] for n in range(4))
  y = jax.nn.silu(y) * jax.nn.softplus(x) * jnp.exp(-jnp.abs(y))
  y = y.reshape(len(x), 3, -1)
  y = y * jax.lax.rsqrt(jnp.sum(y * y, -1, keepdims=True) + 1e-6)
  return inputs[:, 1:], y.reshape(x.shape)


def test_a_row_has_the_same_bits_in_any_batch_and_in_xla_s_parts(monkeypatch):
  state, x, w = draw(64, 3, 21), draw(64, 21, seed=1), draw(4, 21, seed=2)

  def step(state, x):
    run = functools.partial(mixed, w=w)
    state, y = fixed_order.evaluate(run, state, x, rows=len(x))
    return jnp.concatenate([state.reshape(len(x), -1), y], -1)

  test_fixed_order.check_bits(jax.jit(step), state, x)
  whole = np.asarray(jax.jit(step)(state, x))
  oracle = mixed(*map(jnp.float32, (state, x, w)))[1]
  np.testing.assert_allclose(whole[:, -21:], oracle, rtol=2e-6, atol=2e-6)
  monkeypatch.setattr(schedule, 'LARGE', 0)  # no programs
  parts = jax.jit(functools.partial(step, state))
  np.testing.assert_array_equal(parts(x), whole)


def test_a_state_is_replaced_in_place():
  state, x, w = draw(3, 3, 21), draw(3, 21, seed=1), draw(4, 21, seed=2)
  run = functools.partial(mixed, w=w)

  @functools.partial(jax.jit, donate_argnums=0)
  def steps(state, x):
    def step(_, carry):
      return fixed_order.evaluate(run, *carry, rows=3)

    return jax.lax.fori_loop(0, 5, step, (state, x))

  wanted = jnp.asarray(state), jnp.asarray(x)
  text = steps.lower(*wanted).compile().as_text()
  body = text[text.index('custom_call_target="rnn_jax_row_program') :]
  assert ' copy(' not in body[: body.index('\n}')]
  for _ in range(5):
    wanted = run(*wanted)
  for a, b in zip(steps(jnp.asarray(state), x), wanted, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ('equation', 'x', 'w'),
  [
    ('bk,kf->bf', (9,), (9, 33)),
    ('bhi,hio->bho', (3, 5), (3, 5, 6)),
    ('blhi,hio->blho', (1, 3, 5), (3, 5, 17)),
    ('bli,hio->blho', (2, 5), (3, 5, 6)),
    ('bhk,hk->bh', (3, 9), (3, 9)),
  ],
)
def test_small_products_are_part_of_a_call(equation, x, w):
  x, w = draw(64, *x), draw(*w, seed=1)

  @jax.jit
  def run(x):
    def both(x):
      return jnp.tanh(jnp.einsum(equation, 2 * x, w)) * 3

    return fixed_order.evaluate(both, x, rows=len(x))

  for B in (1, 3, 5):  # 3 is also the size of another axis
    text = run.lower(x[:B]).compile().as_text()
    assert text.count('"rnn_jax_row_program"') == 1
    assert 'row_products"' not in text and ' fusion(' not in text
  wanted = 3 * np.tanh(np.einsum(equation, 2 * np.float64(x), np.float64(w)))
  np.testing.assert_allclose(run(x), wanted, rtol=2e-5, atol=2e-5)
  test_fixed_order.check_bits(run, x)


def test_what_can_wait_joins_the_next_program():
  """Between two products is one program, and a state waits for the last."""
  state, x, w = draw(3, 300), draw(3, 300, seed=1), draw(300, 300, seed=2) / 17

  def run(state, x):
    y = jnp.tanh(x + state) @ w
    late = jax.nn.silu(y) @ w
    return state * 0.5 + x * y, late * 2 + y

  @jax.jit
  def step(*x):
    return fixed_order.evaluate(run, *x, rows=3)

  text = step.lower(state, x).compile().as_text()
  assert text.count('"rnn_jax_row_program"') == 3
  for a, b in zip(step(state, x), run(state, x), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_large_rows_are_left_to_xla():
  x = draw(2, schedule.LARGE + 1)
  _, text = evaluated(lambda xp, x, w: x * 2 + 1, None, x)
  assert '"rnn_jax_row_program"' not in text
