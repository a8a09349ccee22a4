"""What this device can do at most: a large matmul, a large copy."""

import jax
import jax.numpy as jnp

from benchmarks import measure
from benchmarks.subjects import models


def float32(repeats, size):
  """Operations a second of a float32 matmul."""
  return _matmul(repeats, size, jnp.float32)


def bfloat16(repeats, size):
  """Operations a second of a bfloat16 matmul with a float32 sum."""
  return _matmul(repeats, size, jnp.bfloat16)


def _matmul(repeats, size, dtype):
  x = jax.jit(lambda: jnp.ones((size, size), dtype))()
  multiply = jax.jit(
    lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32)
  )
  values = measure.repeat(lambda: models.wait(multiply(x, x)), repeats)
  return values | {'flops_per_second': 2 * size**3 / values['min']}


def bandwidth(repeats, mebibytes):
  """Bytes a second, read and written, of a copy that adds 1."""
  x = jax.jit(lambda: jnp.zeros(mebibytes * 2**18, jnp.float32))()
  add = jax.jit(lambda x: x + 1, donate_argnums=0)

  def run():
    nonlocal x
    x = models.wait(add(x))

  values = measure.repeat(run, repeats)
  moved = 2 * mebibytes * 2**20
  return values | {'bytes_per_second': moved / values['min']}
