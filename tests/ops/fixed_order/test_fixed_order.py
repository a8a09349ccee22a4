"""Sums, products and functions of a fixed order, against float64.

Bits of rows are compared between batches of several sizes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from rnn_jax.ops import delta
from rnn_jax.ops import fixed_order
from rnn_jax.ops import gla

ROUNDING = 2.0**-24  # of float32, relative
ROWS = (1, 2, 3, 5, 16, 64)
LENGTHS = (1, 7, 8, 33, 257, 5001)  # of a vector, of several, dividing nothing
FORMS = ['plain', pytest.param('native', marks=pytest.mark.native)]
native = pytest.mark.native
each_form = pytest.mark.parametrize('impl', FORMS)
each_length = pytest.mark.parametrize('N', LENGTHS)


def draw(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def check_bits(run, *arrays):
  """Compares 64 rows with the same rows in smaller batches."""
  whole = np.asarray(run(*arrays))
  for B in ROWS:
    first = run(*(x[:B] for x in arrays))
    np.testing.assert_array_equal(first, whole[:B])
    last = run(*(x[64 - B :] for x in arrays))
    np.testing.assert_array_equal(last, whole[64 - B :])


@each_form
@each_length
def test_logsumexp_and_argmax(N, impl):
  x = 5 * draw(4, N)
  x[1] = -np.inf
  x[2, N // 2] = np.inf
  x[3, N // 3] = x[3, -1] = x[3].max()  # a tie
  total = fixed_order.logsumexp(x, impl)
  wanted = special.logsumexp(np.float64(x), -1)
  np.testing.assert_allclose(total, wanted, rtol=3e-7, atol=3e-7)
  first = fixed_order.argmax(x, impl)
  np.testing.assert_array_equal(first, x.argmax(-1))


@native
@each_length
def test_rows_have_the_same_bits_in_any_batch(N):
  x = draw(64, N) * np.logspace(-3, 3, 64)[:, None].astype(np.float32)
  check_bits(jax.jit(fixed_order.logsumexp), x)
  check_bits(jax.jit(lambda x: fixed_order.total(x, (1,))), x)


@native
def test_a_row_that_is_not_finite_leaves_the_others():
  x = draw(5, 100)
  runs = [
    fixed_order.logsumexp,
    lambda x: fixed_order.total(x, (1,)),
  ]
  for run in runs:
    whole = np.array(run(x))
    bad = x.copy()
    bad[1, 3], bad[3, 99] = np.nan, -np.inf
    y = np.asarray(run(bad))
    np.testing.assert_array_equal(y[::2], whole[::2])
    assert np.isnan(y[1]).all()


@native
@pytest.mark.parametrize(
  ('shape', 'axes'),
  [
    ((3, 5), (1,)),
    ((3, 5), (0,)),
    ((2, 41, 9), (1,)),
    ((2, 41, 9), (-1, 0)),
    ((2, 3, 4, 5), (1, 2)),
    ((4, 5), (0, 1)),
    ((3, 0), (1,)),
  ],
)
def test_sums_over_any_axes(shape, axes):
  x = draw(*shape)
  y = fixed_order.total(x, axes)
  wanted = np.float64(x).sum(axes)
  assert y.shape == wanted.shape and y.dtype == jnp.float32
  np.testing.assert_allclose(
    y, wanted, rtol=0, atol=x.size * ROUNDING * np.abs(x).sum()
  )


@native
@pytest.mark.parametrize(
  ('equation', 'x', 'w'),
  [
    ('bk,kf->bf', (3, 17), (17, 33)),
    ('bk,fk->bf', (3, 17), (33, 17)),
    ('blhi,hio->blho', (3, 1, 4, 5), (4, 5, 6)),
    ('bli,hio->blho', (3, 2, 5), (4, 5, 6)),
    ('blhk,bshk->bhls', (2, 1, 3, 9), (2, 11, 3, 9)),
    ('bhls,bshp->blhp', (2, 3, 1, 11), (2, 11, 3, 10)),
    ('bhkp,bhk->bhp', (2, 3, 5, 20), (2, 3, 5)),
    ('bk,bk->b', (3, 9), (3, 9)),
    ('bkj,kjf->bf', (3, 4, 5), (4, 5, 6)),
    ('k,k->', (9,), (9,)),
  ],
)
def test_products_of_any_axes(equation, x, w):
  x, w = draw(*x), draw(*w, seed=1)
  y = jax.jit(
    lambda x, w: fixed_order.evaluate(
      lambda x, w: jnp.einsum(equation, x, w), x, w
    )
  )(x, w)
  wanted = np.einsum(equation, np.float64(x), np.float64(w))
  size = np.einsum(equation, np.abs(x), np.abs(w))
  assert y.shape == wanted.shape
  assert np.all(np.abs(y - wanted) <= 100 * ROUNDING * size)


ULPS = {  # of the result, the largest: measured .97 to 2.8
  'exp': 1.5,
  'log': 1.5,
  'log1p': 4,
  'tanh': 2,
  'logistic': 3,
  'expm1': 4,
  'rsqrt': 2,
  'erf': 4,
  'sin': 2,
  'cos': 2,
}
ORACLES = {
  'logistic': special.expit,
  'erf': special.erf,
  'rsqrt': lambda x: 1 / np.sqrt(x),
}


@native
@pytest.mark.parametrize('name', ULPS)
def test_functions_round_alike_and_well(name):
  run = jax.jit(lambda x: fixed_order.evaluate(getattr(jax.lax, name), x))
  sizes = np.float32([0.01, 0.3, 1, 4, 20])
  x = np.concatenate([draw(20_000) * size for size in sizes])
  x = np.abs(x) if name in ('log', 'rsqrt') else x
  x = np.where(x < -0.9, -x, x) if name == 'log1p' else x
  oracle = ORACLES.get(name) or getattr(np, name)
  wanted = oracle(np.float64(x))
  ulp = np.spacing(np.abs(wanted).astype(np.float32)).astype(float)
  # Near a zero of sin, the argument's reduction leaves so much.
  floor = 1e-7 if name in ('sin', 'cos') else 0
  error = np.abs(np.float64(run(x)) - wanted)
  assert np.all(error <= np.maximum(ULPS[name] * ulp, floor))
  # A vector, a part of one, and a single number have one form.
  for count in (1, 3, 7, 20):
    np.testing.assert_array_equal(run(x[:count]), run(x)[:count])
  special_values = np.float32([np.inf, -np.inf, np.nan, 0])
  with np.errstate(all='ignore'):
    wanted = oracle(np.float64(special_values))
  np.testing.assert_array_equal(run(special_values), np.float32(wanted))


def _shrink(y, k):
  return y / (k + jnp.sum(y * y)), k


@native
def test_what_a_function_calls_is_evaluated_too():
  def run(x):
    y = jax.nn.softmax(jax.nn.silu(x)) * jax.checkpoint(jnp.tanh)(x)
    y = jax.lax.cond(y[0, 0] > 9, lambda: y, lambda: y - jnp.mean(y))
    y, _ = jax.lax.scan(_shrink, y, jnp.ones(3))
    y = jax.lax.while_loop(lambda y: jnp.sum(y * y) < 9, lambda y: 2 * y, y)
    return {'y': y, 'norm': jnp.linalg.norm(y, axis=-1)}

  x = draw(3, 21)
  for a, b in zip(
    jax.tree.leaves(fixed_order.evaluate(run, x)),
    jax.tree.leaves(run(x)),
    strict=True,
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  text = jax.jit(lambda x: fixed_order.evaluate(run, x)).lower(x).as_text()
  assert text.count('custom_call @rnn_jax_row_program') == 7
  assert 'stablehlo.tanh' not in text and 'stablehlo.reduce' not in text


@native
def test_a_product_is_rounded_before_a_sum():
  # 1 + 2^-12 squared, less 1 + 2^-11: 2^-24, which a rounded product loses.
  x = np.full(64, 1 + 2.0**-12, np.float32)
  rounded = np.full(64, 1 + 2.0**-11, np.float32)
  run = jax.jit(lambda x, y: fixed_order.evaluate(lambda x, y: x * x - y, x, y))
  np.testing.assert_array_equal(run(x, rounded), np.zeros(64))


@native
def test_a_constant_factor_and_a_divisor_of_a_row_have_the_same_bits():
  """XLA knows more of them where there is one row."""

  def run(x):
    size = jnp.sum(jnp.abs(x), -1)
    spread = jnp.sum(jnp.square(x), -1) + 0.01 * size + 1e-6
    return x / spread[..., None], spread

  x = draw(512, 1, 9)
  run = jax.jit(functools.partial(fixed_order.evaluate, run))
  whole = run(x)
  for n, row in enumerate(x):
    for y, wanted in zip(run(row[None]), whole, strict=True):
      np.testing.assert_array_equal(y[0], wanted[n])


def test_rows_of_nothing_are_refused():
  with pytest.raises(ValueError, match='rows of a number or more'):
    fixed_order.logsumexp(np.zeros((2, 0), np.float32))


@native
@pytest.mark.parametrize('rule', ['gla', 'delta', 'general'])
def test_a_step_of_a_matrix_state_is_one_call_in_place(rule):
  H, K, P = 3, 5, 7
  state, v = draw(64, H, K, P), draw(64, 1, H, P)
  q, k, read, write = (draw(64, 1, H, K, seed=n) / 2 for n in range(4))
  loga, beta = -abs(draw(64, 1, H, K)), abs(draw(64, 1, H))
  run, others = {
    'gla': (gla.recurrence, ()),
    'delta': (delta.recurrence, (beta,)),
    'general': (delta.general_recurrence, (read, write)),
  }[rule]
  arrays = state, q, k, v, loga, *others
  step = jax.jit(lambda *x: fixed_order.evaluate(run, *x), donate_argnums=0)
  compiled = step.lower(*arrays).compile().as_text()
  kind = 'delta_general' if rule == 'general' else rule
  assert compiled.count(f'"rnn_jax_{kind}_forward"') == 1
  assert ' copy(' not in compiled

  def joined(*x):
    return jnp.concatenate([y.reshape(len(y), -1) for y in step(*x)], -1)

  check_bits(joined, *arrays)
  wanted = run(*arrays, impl='step')
  for y, z in zip(step(*arrays), wanted, strict=True):
    np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-5)
