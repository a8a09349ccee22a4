"""Compares products with packed matrices with float64, in each format.

The wanted product is that with the rounded matrix, so that the error is the
form's own. It is the largest of y, divided by the largest number of y. A form
in C++ must also give a row the same bits by itself and among others.
"""

from collections.abc import Iterator

import jax
import numpy as np

from rnn_jax.ops import products
from rnn_jax.selfcheck import base

OP = 'product'
SHAPES = ((1, 96, 80), (7, 37, 21))  # rows, K, F; the second divides nothing
CLOSE = 1e-6  # in float32; measured: 2.2e-7
# x is rounded to 16 bits; measured: 2.9e-5.
BOUNDS = {'native': dict.fromkeys(('int8', 'int8_blocks', 'int4'), 4e-5)}


def cases() -> Iterator[base.Case]:
  """Yields each format of each form that this device can run."""
  for impl in implementations():
    for format in products.FORMATS:
      for B, K, F in SHAPES:
        yield base.Case(impl, B, K, F, '-', '-', format, '-', OP)


def implementations() -> list[str]:
  """Returns the implementations that this device can run."""
  lacking = {'auto': True, 'native': bool(products.lacking_native())}
  return [impl for impl in products.IMPLS if not lacking.get(impl)]


def check(case: base.Case) -> base.Result:
  """Runs one case."""
  rng = np.random.default_rng(0)
  x, w = (
    rng.normal(size=shape).astype(np.float32)
    for shape in ((case.L, case.K), (case.K, case.P))
  )
  packed = products.pack(jax.device_put(w), case.dtype, case.impl)
  run = jax.jit(products.multiply)
  y = np.asarray(run(jax.device_put(x), packed))
  want = np.matmul(x, products.unpack(packed), dtype=np.float64)
  error = float(abs(y - want).max() / abs(want).max())
  where = 'y'
  if case.impl == 'native':
    rows = [run(jax.device_put(row[None]), packed) for row in x]
    alone = np.concatenate([np.asarray(row) for row in rows])
    if not np.array_equal(alone, y):
      error, where = np.inf, 'a row by itself has other bits'
  bound = BOUNDS.get(case.impl, {}).get(case.dtype, CLOSE)
  return base.Result(case, error, bound, where)
