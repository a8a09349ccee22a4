"""Parameters in 8 and 4 bits: their size and the restored numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.models import rounded_weights
from rnn_jax.ops import eight_bits
from rnn_jax.ops.products import formats
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import tiny

pack = jax.jit(rounded_weights.pack)
unpack = jax.jit(rounded_weights.unpack)


def by_hand(x, axis):
  """An array rounded to 255 levels by the largest of each channel."""
  x = np.float64(x)
  scale = np.abs(x).max(axis, keepdims=True) / 127
  return np.round(x / scale) * scale


def test_each_channel_is_rounded_by_its_own_scale():
  bundle = bundles.make(tiny.with_blocks(tiny.raw_config('text')))
  packed = pack(bundle.params)
  got = bundle_lib.flat(jax.device_get(unpack(packed)))
  kernels = 0
  for name, x in bundle_lib.flat(bundle.params).items():
    leaf = name.rpartition('.')[2]
    axis = {'kernel': -2, 'embedding': -1}.get(leaf)
    want = x if axis is None else by_hand(x, axis)
    kernels += axis is not None
    # A number half-way may go either way: none here does.
    np.testing.assert_allclose(got[name], want, rtol=0, atol=3e-7)
  assert kernels == 7
  again = pack(unpack(packed))
  jax.tree.map(
    lambda a, b: (
      np.testing.assert_array_equal(a, b)
      if a.dtype == np.int8
      else np.testing.assert_allclose(a, b, rtol=1e-6)
    ),
    jax.device_get(again),
    jax.device_get(packed),
  )


def test_an_8_bit_matmul_rounds_to_the_same_numbers():
  w = jax.random.normal(jax.random.key(0), (12, 5))
  packed = rounded_weights.pack({'kernel': w})
  unpacked = rounded_weights.unpack(packed)['kernel']
  numbers, _ = eight_bits.quantize(unpacked, (0,))
  np.testing.assert_array_equal(numbers, packed['kernel']['int8'])


def test_a_channel_in_4_bits_has_a_scale_for_each_32_numbers():
  rng = np.random.default_rng(0)
  params = {
    'up': {'kernel': rng.normal(size=(3, 48, 7)).astype(np.float32)},
    'embedding': {'embedding': rng.normal(size=(5, 32)).astype(np.float32)},
    'odd': {'kernel': rng.normal(size=(9, 4)).astype(np.float32)},
  }
  pack_4 = jax.jit(functools.partial(rounded_weights.pack, format='int4'))
  packed = jax.device_get(pack_4(params))
  assert packed['up']['kernel']['int4'].shape == (3, 24, 7)
  assert packed['up']['kernel']['scale'].shape == (3, 2, 7)
  assert packed['embedding']['embedding']['int4'].shape == (5, 16)
  assert packed['embedding']['embedding']['scale'].shape == (5, 1)
  assert {*packed['odd']['kernel']} == {'int8', 'scale'}
  got = jax.device_get(unpack(packed))
  matrices = (
    *zip(got['up']['kernel'], params['up']['kernel'], strict=True),
    (got['embedding']['embedding'].T, params['embedding']['embedding'].T),
  )
  for restored, w in matrices:
    want = formats.dequantize(formats.quantize(jnp.array(w), 'int4'))
    np.testing.assert_array_equal(restored, want)
    # Half a step of the 16 of a block, which its largest number spans.
    step = np.abs(w).max(0) / 7
    assert (np.abs(restored - w) <= step).all()
    assert np.abs(restored - w).max() > 1e-2


def test_zeros_stay_zeros_and_vectors_are_not_packed():
  params = {'a': {'kernel': jnp.zeros((3, 2)), 'bias': jnp.ones(2)}}
  packed = rounded_weights.pack(params)
  assert rounded_weights.is_packed(packed) and not rounded_weights.is_packed(
    params
  )
  got = rounded_weights.unpack(packed)
  jax.tree.map(np.testing.assert_array_equal, got, params)
  assert packed['a']['bias'] is params['a']['bias']
