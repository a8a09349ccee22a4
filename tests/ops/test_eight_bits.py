"""Matmuls in 8 bits against the same done by hand in float64."""

import functools
from unittest import mock

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from rnn_jax.ops import eight_bits

DENSE = (((1,), (0,)), ((), ()))
KINDS = [*eight_bits.FORMATS]
LARGEST = {'int8': 127, 'fp8': 448}
# Measured for int8: 1e-7, by two products in float32; a sum of 300 numbers in
# float32 rounds more.
CLOSE = {'int8': 4e-7, 'fp8': 2e-6}
OFF = {'int8': 0.02, 'fp8': 0.06}  # by rounding, measured for int8: 1.0e-2


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_hand(x, axis, kind):
  """Scales and rounded numbers, held in float64, of a matrix."""
  scale = np.abs(x).max(axis, keepdims=True) / np.float32(LARGEST[kind])
  numbers = x / scale
  if kind == 'int8':
    numbers = np.rint(numbers)
  else:
    numbers = numbers.astype(ml_dtypes.float8_e4m3fn)
  return np.float64(scale), numbers.astype(np.float64)


@functools.partial(jax.jit, static_argnums=(2, 3))
def product(x, w, numbers=DENSE, kind='int8'):
  return eight_bits.dot_general(x, w, numbers, kind)


@pytest.mark.parametrize('kind', KINDS)
def test_the_product_is_that_of_the_rounded_factors(kind):
  x, w = normal(5, 300), normal(300, 4, seed=1) * np.float32([1, 9, 0.1, 1e-5])
  (x_scale, x_8), (w_scale, w_8) = by_hand(x, 1, kind), by_hand(w, 0, kind)
  got = product(x, w, DENSE, kind)
  assert got.dtype == jnp.float32
  largest = (x_scale * abs(x_8)) @ (abs(w_8) * w_scale)  # no cancellation
  want = x_scale * (x_8 @ w_8) * w_scale
  assert (abs(got - want) <= CLOSE[kind] * largest).all()
  exact = np.float64(x) @ np.float64(w)
  error = np.linalg.norm(got - exact, axis=0) / np.linalg.norm(exact, axis=0)
  assert (error > 1e-3).all() and (error < OFF[kind]).all()


@pytest.mark.parametrize(
  ('x_shape', 'w_shape', 'x_axes', 'w_axes'),
  (
    ((2, 5, 3), (3, 4), (2,), (0,)),
    ((2, 5, 3, 4), (4, 3, 2), (2, 3), (1, 0)),
    ((4, 5, 3, 2), (3, 6, 4), (0, 2), (2, 0)),
    ((3,), (3, 4), (0,), (0,)),
  ),
)
def test_scales_belong_to_the_free_axes(x_shape, w_shape, x_axes, w_axes):
  x, w = normal(*x_shape), normal(*w_shape, seed=1)
  got = product(x, w, ((x_axes, w_axes), ((), ())))
  # The same as a product of matrices.
  x_free = [a for a in range(x.ndim) if a not in x_axes]
  w_free = [a for a in range(w.ndim) if a not in w_axes]
  rows = np.transpose(x, [*x_free, *x_axes])
  columns = np.transpose(w, [*w_axes, *w_free])
  size = np.prod([x.shape[a] for a in x_axes])
  flat = product(rows.reshape(-1, size), columns.reshape(size, -1))
  shape = [x.shape[a] for a in x_free] + [w.shape[a] for a in w_free]
  np.testing.assert_array_equal(got, flat.reshape(shape))


numbers = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


@hypothesis.given(x=hnp.arrays(np.float32, (3, 4), elements=numbers))
def test_floats_are_rounded_to_the_nearest(x):
  quantize = jax.jit(eight_bits.quantize, static_argnums=(1, 2))
  x_8, scale = quantize(x, 1, 'fp8')
  assert (x_8.dtype, scale.shape) == (jnp.float8_e4m3fn, (3, 1))
  want = (x / np.asarray(scale)).astype(ml_dtypes.float8_e4m3fn)
  np.testing.assert_array_equal(np.asarray(x_8, 'f4'), want.astype('f4'))


@hypothesis.given(x=hnp.arrays(np.float32, (3, 4), elements=numbers))
def test_the_error_is_at_most_half_a_scale(x):
  x_8, scale = jax.jit(eight_bits.quantize, static_argnums=1)(x, 1)
  assert (x_8.dtype, scale.dtype) == (jnp.int8, jnp.float32)
  assert scale.shape == (3, 1)
  back = np.float64(x_8) * np.float64(scale)
  assert (abs(back - x) <= 0.5001 * np.float64(scale)).all()
  assert np.abs(np.int32(x_8)).max() <= 127


@pytest.mark.parametrize('kind', KINDS)
def test_rows_of_zeros_and_non_finite_numbers(kind):
  x, w = normal(4, 3), normal(3, 2, seed=1)
  x[0], x[1, 0], x[2, 1] = 0, np.nan, np.inf
  got = product(x, w, DENSE, kind)
  assert not got[0].any()
  assert not np.isfinite(got[1:3]).any() and np.isfinite(got[3]).all()


def test_the_sum_is_exact_to_the_longest_that_int32_holds():
  ones = np.ones((1, eight_bits.LONGEST), np.float32)
  np.testing.assert_allclose(
    product(ones, ones.T), eight_bits.LONGEST, rtol=CLOSE['int8']
  )
  longer = np.ones((1, eight_bits.LONGEST + 1), np.float32)
  with pytest.raises(NotImplementedError, match='133145 int8 products'):
    product(longer, longer.T)


def test_batch_axes_are_refused_by_name():
  x = normal(2, 3, 3)
  with pytest.raises(NotImplementedError, match='no batch axes'):
    product(x, x, (((2,), (1,)), ((0,), (0,))))


@pytest.mark.parametrize(
  ('capability', 'emulated'),
  (('9.0', False), ('8.9', False), ('12.0', False), ('8.6', True), ('', True)),
)
def test_newer_gpus_multiply_8_bit_floats(capability, emulated):
  device = mock.Mock(compute_capability=capability)
  assert eight_bits.emulated(device) is emulated


def test_without_them_the_same_products_are_of_bfloat16():
  text = str(product.trace(normal(2, 3), normal(3, 4), DENSE, 'fp8').jaxpr)
  assert 'f8_e4m3fn' in text and 'bf16' in text
