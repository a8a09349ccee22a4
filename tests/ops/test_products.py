"""Products with packed weights, against float64 sums of what is packed."""

import concurrent.futures

import jax
import numpy as np
import pytest

from rnn_jax.ops import products

ROUNDING = 2.0**-24  # of float32, relative
SIXTEEN = 1 / (2 * 32767)  # of x in 16 bits, of a row's largest number
# K and F: of one block, of several, dividing nothing, and more than 512 rows.
SHAPES = ((1, 1), (32, 5), (65, 40), (1100, 33))
FORMS = [
  'plain',
  pytest.param('native', marks=pytest.mark.native),
]
each_format = pytest.mark.parametrize('format', products.FORMATS)
each_form = pytest.mark.parametrize('impl', FORMS)


def draw(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def blocks(w_KxF):
  """Returns the blocks of 32 numbers of each column, NxBxF, filled up."""
  K, F = w_KxF.shape
  filled = np.zeros((-(-K // 32) * 32, F))
  filled[:K] = w_KxF
  return filled.reshape(-1, 32, F)


@pytest.mark.parametrize('shape', SHAPES)
@each_form
@each_format
def test_numbers_are_the_nearest_of_the_format(format, impl, shape):
  w = draw(*shape)
  kept = np.float64(products.unpack(products.pack(w, format, impl)))
  error = np.abs(kept - w)
  if format in ('float32', 'bfloat16'):
    np.testing.assert_array_equal(kept, w.astype(format).astype(float))
  elif format == 'int8':
    scale = np.abs(w).max(0) / 127
    assert np.all(error <= scale / 2 * (1 + 1e-5))
  elif format == 'int8_blocks':
    scale = np.abs(blocks(w)).max(1, keepdims=True) / 127
    scale = scale * (1 + 2**-10)  # the next float16
    assert np.all(blocks(error) <= scale / 2 * (1 + 1e-5))
  else:
    whole = blocks(w)
    at = np.abs(whole).argmax(1)[:, None]
    scale = np.float16(np.take_along_axis(whole, at, 1) / -8).astype(float)
    number = np.clip(np.round(whole / scale), -8, 7)
    of_q4_0 = ((scale * number - whole) ** 2).sum(1)
    best = (blocks(error) ** 2).sum(1)
    assert np.all(best <= of_q4_0 * (1 + 1e-6))
    assert best.sum() < 0.97 * of_q4_0.sum() or w.size < 100


@pytest.mark.native
@each_format
def test_both_forms_hold_the_same_numbers(format):
  w = draw(70, 37)
  one, other = (
    products.unpack(products.pack(w, format, impl))
    for impl in ('plain', 'native')
  )
  np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('shape', SHAPES)
@each_form
@each_format
def test_products_are_exact_sums(format, impl, shape):
  K, F = shape
  w = draw(*shape)
  packed = products.pack(w, format, impl)
  w = np.float64(products.unpack(packed))
  multiply = jax.jit(products.multiply)
  for B in (1, 3, 29):
    x = draw(B, K, seed=B)
    size = np.abs(x) @ np.abs(w)
    allowed = (K + 4) * ROUNDING * size
    if impl == 'native' and format.startswith('int'):
      largest = np.abs(x).max(1, keepdims=True)
      allowed += SIXTEEN * 1.001 * largest * np.abs(w).sum(0)
    error = np.abs(np.float64(multiply(x, packed)) - np.float64(x) @ w)
    assert np.all(error <= allowed), (B, (error / allowed).max())


@pytest.mark.native
@each_format
def test_a_row_has_the_same_bits_alone_and_among_others(format):
  K, F = 700, 100
  packed = products.pack(draw(K, F), format, 'native')
  x = draw(64, K, seed=1) * np.logspace(-3, 3, 64)[:, None].astype(np.float32)
  multiply = jax.jit(products.multiply)
  alone = np.concatenate([multiply(row[None], packed) for row in x])
  for B in (2, 3, 5, 16, 64):
    np.testing.assert_array_equal(multiply(x[:B], packed), alone[:B])
    # Rows further on have other places in the blocks of rows.
    np.testing.assert_array_equal(
      multiply(x[64 - B :], packed), alone[64 - B :]
    )


@pytest.mark.native
def test_products_of_several_callers_are_those_of_one():
  """Threads that wait awake for one caller's products help another's."""
  x = draw(1, 600)
  packed = [
    products.pack(draw(600, 900 + 64 * n, seed=n), 'int8', 'native')
    for n in range(3)
  ]
  run = jax.jit(products.multiply)
  wanted = [np.asarray(run(x, w)) for w in packed]

  def ask(n):
    order = [(n + turn) % 3 for turn in range(60)]
    return [(own, np.asarray(run(x, packed[own]))) for own in order]

  with concurrent.futures.ThreadPoolExecutor(4) as callers:
    made = [pair for pairs in callers.map(ask, range(4)) for pair in pairs]
  assert len(made) == 240
  for own, y in made:
    np.testing.assert_array_equal(y, wanted[own])


@pytest.mark.native
@each_format
def test_a_row_that_is_not_finite_leaves_the_others(format):
  packed = products.pack(draw(64, 20), format, 'native')
  x = draw(5, 64, seed=1)
  whole = np.asarray(products.multiply(x, packed))
  x[1, 3], x[3, 60] = np.nan, -np.inf
  y = np.asarray(products.multiply(x, packed))
  np.testing.assert_array_equal(y[::2], whole[::2])
  assert not np.isfinite(y[1]).any() and not np.isfinite(y[3]).all()


@each_form
@each_format
def test_a_matrix_that_is_not_finite_shows(format, impl):
  w = draw(40, 20)
  w[35, 2] = np.nan
  packed = products.pack(w, format, impl)
  y = np.asarray(products.multiply(draw(2, 40), packed))
  assert np.isnan(y[:, 2]).all() and np.isfinite(np.delete(y, 2, 1)).all()


@each_form
@each_format
def test_zeros_and_tiny_and_huge_numbers(format, impl):
  w = np.zeros((64, 3), np.float32)
  w[:, 1], w[:, 2] = 1e-4, 1e5
  x = np.float32([[0] * 64, [1e-38] * 64, [1e30] * 64])
  packed = products.pack(w, format, impl)
  kept = np.asarray(products.unpack(packed))
  assert not kept[:, 0].any()
  np.testing.assert_allclose(kept, w, rtol=1e-2)
  y = np.asarray(products.multiply(x, packed))
  np.testing.assert_allclose(y[::2], x[::2] @ kept, rtol=1e-4)
  assert np.isfinite(y).all()


@each_form
@each_format
def test_the_gradient_is_that_of_the_rounded_matrix(format, impl):
  w, x, d = draw(40, 20), draw(2, 3, 40, seed=1), draw(2, 3, 20, seed=2)
  packed = products.pack(w, format, impl)
  _, back = jax.vjp(lambda x: products.multiply(x, packed), x)
  expected = np.float64(d) @ np.float64(products.unpack(packed)).T
  np.testing.assert_allclose(back(d)[0], expected, rtol=0, atol=2e-5)


@pytest.mark.native
@each_format
def test_vmap_adds_rows(format):
  packed = products.pack(draw(40, 20), format, 'native')
  x = draw(3, 2, 40, seed=1)
  y = jax.vmap(products.multiply, (0, None))(x, packed)
  np.testing.assert_array_equal(y, products.multiply(x, packed))


def test_bad_arguments_are_named():
  w = draw(4, 4)
  with pytest.raises(ValueError, match="format='int2': choose one of"):
    products.pack(w, 'int2')
  with pytest.raises(ValueError, match="impl='fast': choose one of"):
    products.pack(w, 'int8', 'fast')
  with pytest.raises(ValueError, match=r'shape \(4,\): give a matrix'):
    products.pack(w[0], 'int8')
  with pytest.raises(ValueError, match=r'last axis must be K=4'):
    products.multiply(w[:, :3], products.pack(w, 'int8'))


@each_format
@pytest.mark.parametrize('shape', (SHAPES[0], SHAPES[-1]))
def test_panels_have_the_declared_shapes_and_serve_the_plain_form(
  format, shape, monkeypatch
):
  w = np.stack([draw(*shape), draw(*shape, seed=1)])
  made = jax.vmap(lambda x: products.panels(x, format))(w)
  like = products.panels_like(w.shape, format)
  assert like.shape == made.shape == shape
  assert [(x.shape, x.dtype) for x in like.arrays] == [
    (x.shape, x.dtype) for x in made.arrays
  ]
  lacking = products.products_native
  monkeypatch.setattr(lacking, 'lacking', lambda: 'no compiler')
  plain = products.for_this_machine(made)
  wanted = jax.vmap(lambda x: products.pack(x, format))(w)
  assert plain.impl == wanted.impl == 'plain'
  jax.tree.map(np.testing.assert_array_equal, plain, wanted)
