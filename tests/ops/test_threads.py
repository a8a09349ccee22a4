"""Results of the C++ library on one core equal those on all, to the bit.

One process with one core computes all cases; this process has all cores.
"""

import functools
import os
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import fixed_order
from rnn_jax.ops import gla
from rnn_jax.ops import products
from tests.ops import test_gated_layers
from tests.ops import test_products
from tests.ops.fixed_order import test_fixed_order
from tests.ops.gla import test_projected
from tests.ops.gla import test_properties
from tests.support import tiny

pytestmark = [pytest.mark.native, pytest.mark.slow]


def recurrence():
  """One row of many columns, which threads share."""
  inputs = test_properties.draw(100, H=1, K=8, P=96)

  @jax.jit
  def both_ways(*inputs):
    run = functools.partial(gla.recurrence, impl='native')
    out, back = jax.vjp(run, *inputs)
    return out, back(jax.tree.map(jnp.cos, out))

  return both_ways(*inputs)


def projected():
  layout, x, starts, d = test_projected.draw(test_projected.CASES[3])
  x = test_projected.in_float32(x)
  return test_projected.both_ways(layout, 16, starts, x, d)


def layers(kind, depth):
  x, starts, d = test_gated_layers.draw(kind, depth, (19, 5, 33))
  x = test_gated_layers.in_float32(x)
  return test_gated_layers.both_ways(kind, depth, x, starts, d)


def product(format):
  """Enough weights for several threads."""
  packed = products.pack(test_products.draw(600, 1000), format, 'native')
  return products.multiply(test_products.draw(3, 600), packed)


def in_fixed_order():
  """Rows that are long enough for several threads."""
  x = test_fixed_order.draw(3, 70_001)

  def run(x):
    scores = jnp.einsum('bn,cn->bc', x, jnp.sin(x))
    return jnp.sum(x, 1), jnp.sum(x, 0), scores, jnp.exp(x)

  def row(x):
    return jnp.tanh(x) * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True))

  return (
    fixed_order.logsumexp(x),
    fixed_order.argmax(x),
    fixed_order.evaluate(run, x),
    fixed_order.evaluate(row, test_fixed_order.draw(64, 5000), rows=64),
  )


CASES = {
  'gla': recurrence,
  'gla from its projection': projected,
  'sums, products and functions': in_fixed_order,
  **{
    f'{kind} {depth}': functools.partial(layers, kind, depth)
    for kind, depth in test_gated_layers.KINDS
  },
  **{
    f'product in {format}': functools.partial(product, format)
    for format in products.FORMATS
  },
}


def made(case):
  """The bytes of a case's arrays."""
  arrays = jax.device_get(jax.tree.leaves(CASES[case]()))
  return b''.join(np.asarray(x).tobytes() for x in arrays)


@pytest.fixture(scope='module')
def on_one_core():
  core = min(os.sched_getaffinity(0))
  program = (
    f'import os; os.sched_setaffinity(0, [{core}]);'
    'import pickle, sys; from tests.ops import test_threads as tests;'
    'results = {case: tests.made(case) for case in tests.CASES};'
    'sys.stdout.buffer.write(pickle.dumps(results))'
  )
  process = subprocess.run(
    [sys.executable, '-c', program],
    check=True,
    stdout=subprocess.PIPE,
    cwd=tiny.ROOT,
  )
  return pickle.loads(process.stdout)


@pytest.mark.parametrize('case', CASES)
def test_threads_change_no_bit(on_one_core, case):
  one, all_ = on_one_core[case], made(case)
  assert len(one) > 1000 and one == all_
