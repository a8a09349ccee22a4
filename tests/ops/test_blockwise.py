"""Blocks of bytes against the code's definition and brute force in NumPy."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnn_jax.ops import blockwise

CODES = {'signed': blockwise.SIGNED, 'unsigned': blockwise.UNSIGNED}
quantize = jax.jit(blockwise.quantize)
dequantize = jax.jit(blockwise.dequantize)


def read_bits(pattern, more):
  """What seven bits mean: leading zeros are the exponent, the first one ends
  it, the rest is linear from .1 to 1, with `more` bits."""
  bits = pattern.bit_length() - 1
  fraction = (np.arange(2**more) / 2**more + pattern - 2**bits) / 2**bits
  middle = 0.5 / 2 ** (bits + more)
  return 10.0 ** (bits - 6) * (0.1 + 0.9 * (fraction + middle))


def test_the_codes_are_those_of_their_bits():
  signed = np.concatenate([read_bits(p, 0) for p in range(1, 128)])
  expected = np.sort([0, 1, *signed, *-signed])
  np.testing.assert_allclose(blockwise.SIGNED, expected, rtol=1e-6)
  unsigned = np.concatenate([read_bits(p, 1) for p in range(1, 128)])
  expected = np.sort([0, 1, *unsigned])
  np.testing.assert_allclose(blockwise.UNSIGNED, expected, rtol=1e-6)


@pytest.mark.parametrize('name', CODES)
def test_a_code_has_256_sorted_entries(name):
  code = CODES[name]
  assert code.shape == (256,) and code.dtype == np.float32
  assert (np.diff(code) > 0).all()
  assert code[-1] == 1 and 0 in code and -1 not in code
  assert code[0] == (0 if name == 'unsigned' else np.float32(-0.99296875))


def draw(seed, shape, signed):
  """Numbers of very different sizes, some of them 0."""
  rng = np.random.default_rng(seed)
  x = rng.normal(size=shape) * 10.0 ** rng.uniform(-9, 3, shape)
  x = np.float32(x * (rng.random(shape) > 0.1))
  return x if signed else np.abs(x)


@pytest.mark.parametrize('name', CODES)
@given(
  seed=st.integers(0, 2**32 - 1),
  shape=st.sampled_from([(1,), (256,), (257,), (3, 100), (2, 8, 32), (1000,)]),
)
def test_each_number_becomes_the_nearest_entry(name, seed, shape):
  code, x = CODES[name], draw(seed, shape, name == 'signed')
  codes, absmax_N = jax.device_get(quantize(x, code))
  assert codes.shape == x.shape and codes.dtype == np.uint8
  for n, begin in enumerate(range(0, x.size, 256)):
    block = np.float64(x.reshape(-1)[begin : begin + 256])
    assert absmax_N[n] == np.abs(block).max()
    relative = block / (absmax_N[n] or 1)
    distances = np.abs(relative[:, None] - np.float64(code))
    taken = codes.reshape(-1)[begin : begin + 256]
    chosen = np.take_along_axis(distances, taken[:, None].astype(int), 1)[:, 0]
    # Two entries may be equally near but for the rounding of a quotient.
    assert (chosen <= distances.min(1) + 1e-7).all()


@pytest.mark.parametrize('name', CODES)
def test_dequantized_numbers_are_the_entry_times_the_largest(name):
  code, x = CODES[name], draw(0, (3, 100), name == 'signed')
  codes, absmax_N = jax.device_get(quantize(x, code))
  y = dequantize(codes, absmax_N, code)
  largest = np.repeat(absmax_N, 256)[:300].reshape(3, 100)
  np.testing.assert_array_equal(y, code[codes] * largest)


def test_zeros_stay_zeros():
  for code in CODES.values():
    y = dequantize(*quantize(np.zeros((5, 70), np.float32), code), code)
    np.testing.assert_array_equal(y, np.zeros((5, 70)))


def test_blocks_are_independent():
  x = draw(0, (512,), signed=True)
  other = x.copy()  # jax may still read x
  other[300] = 1e6
  codes, _ = quantize(x, blockwise.SIGNED)
  changed, _ = quantize(other, blockwise.SIGNED)
  np.testing.assert_array_equal(codes[:256], changed[:256])
  assert (np.asarray(codes[256:]) != np.asarray(changed[256:])).any()
