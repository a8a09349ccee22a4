"""8-bit checkpoints: their size and the restored numbers."""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.models import int8_weights
from rnn_jax.ops import eight_bits
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import tiny

pack = jax.jit(int8_weights.pack)
unpack = jax.jit(int8_weights.unpack)


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
  packed = int8_weights.pack({'kernel': w})
  unpacked = int8_weights.unpack(packed)['kernel']
  numbers, _ = eight_bits.quantize(unpacked, (0,))
  np.testing.assert_array_equal(numbers, packed['kernel']['int8'])


def test_zeros_stay_zeros_and_vectors_are_not_packed():
  params = {'a': {'kernel': jnp.zeros((3, 2)), 'bias': jnp.ones(2)}}
  packed = int8_weights.pack(params)
  assert int8_weights.is_packed(packed) and not int8_weights.is_packed(params)
  got = int8_weights.unpack(packed)
  jax.tree.map(np.testing.assert_array_equal, got, params)
  assert packed['a']['bias'] is params['a']['bias']
