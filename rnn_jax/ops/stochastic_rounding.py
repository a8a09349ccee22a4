"""Stochastic rounding: up or down at random, unbiased.

A float32 number x between the neighbours a < b of a coarser format becomes b
with probability (x - a) / (b - a), else a: E[round(x)] = x. Running averages
stored in the coarse format need it: the change of one step is often less than
half the distance between neighbours, and rounding to nearest would drop it.
Source: Gupta et al., "Deep Learning with Limited Numerical Precision", 2015.

The random bits of a number are a hash of its index, offset by a random word.
Source: Wellons, "Prospecting for Hash Functions", 2018 (lowbias32).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def to_bfloat16(x: jax.Array, key: jax.Array) -> jax.Array:
  """Returns float32 numbers of any shape as bfloat16, rounded at random.

  A number that bfloat16 represents exactly doesn't change, nor does infinity.
  """
  # bfloat16 is the upper half of a float32. The lower half is the fraction of
  # the way to the next number: a random addend carries with that probability.
  bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + _draws(x.shape, key)
  upper = (bits >> 16).astype(jnp.uint16)
  return jax.lax.bitcast_convert_type(upper, jnp.bfloat16)


def _draws(shape, key):
  """Returns random numbers from 0 to 2^16 - 1, uint32."""
  # jax.random would take 16 bytes per number and 30 times as long on a CPU.
  position = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
  bits = position * np.uint32(0x9E3779B9) + jax.random.bits(key)
  bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
  bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
  return bits >> 16
