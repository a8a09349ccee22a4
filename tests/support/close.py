"""Arrays that are equal up to rounding."""

import jax
import numpy as np


def check(got, want, tolerance, floor=0.0, name=''):
  """Compares the leaves of two trees, each with its largest value.

  Args:
    got: a tree of arrays.
    want: a tree with as many.
    tolerance: of the largest error, as a share of the largest value.
    floor: the least value that counts as the largest.
    name: said of a difference.
  """
  # At once, since jax compiles an operation for each shape.
  got, want = jax.device_get((got, want))
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    largest = max(floor, np.abs(np.asarray(b, np.float64)).max(initial=0))
    np.testing.assert_allclose(
      np.asarray(a, np.float64),
      b,
      rtol=0,
      atol=tolerance * largest,
      err_msg=name,
    )
