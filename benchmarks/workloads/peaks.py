"""The most that this device can do: a large matmul, a large copy."""

import concurrent.futures

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import programs


def float32(repeats: int, size: int) -> measure.Values:
  """Operations per second of a float32 matmul."""
  return _matmul(repeats, size, jnp.float32)


def bfloat16(repeats: int, size: int) -> measure.Values:
  """Operations per second of a bfloat16 matmul with a float32 sum."""
  return _matmul(repeats, size, jnp.bfloat16)


def _matmul(repeats, size, dtype):
  x = jax.jit(lambda: jnp.ones((size, size), dtype))()
  multiply = jax.jit(
    lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32)
  )
  values = measure.repeat(programs.run(multiply, x, x), repeats)
  return values | {'flops_per_second': 2 * size**3 / values['min']}


def bandwidth(repeats: int, mebibytes: int) -> measure.Values:
  """Bytes per second, read and written, of a copy that adds 1."""
  x = jax.jit(lambda: jnp.zeros(mebibytes * 2**18, jnp.float32))()
  add = jax.jit(lambda x: (x + 1, None), donate_argnums=0)
  values = measure.repeat(programs.step(add, x), repeats)
  return values | {'bytes_per_second': 2 * mebibytes * 2**20 / values['min']}


def reading(repeats: int, mebibytes: int) -> measure.Values:
  """Bytes per second that all cores read together."""
  cores = measure.cores()
  shards = np.split(np.ones(mebibytes * 2**17 // cores * cores), cores)
  with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    values = measure.repeat(lambda: list(pool.map(np.sum, shards)), repeats)
  read = sum(shard.nbytes for shard in shards)
  return values | {'bytes_per_second': read / values['min']}
