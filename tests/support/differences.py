"""Gradients against differences of a float64 oracle."""

import numpy as np

BY = 1e-6  # a step of inputs near 1, whose differences keep half their digits


def total(outputs, cotangents):
  """The sum whose gradients the cotangents start."""
  pairs = zip(outputs, cotangents, strict=True)
  return sum((x * d).sum() for x, d in pairs if x is not None)


def check(oracle, inputs, gradients, cotangents, *, scale, bound):
  """Compares each gradient along random directions.

  Args:
    oracle: inputs -> outputs, in float64.
    inputs: arrays of float64.
    gradients: of `total` by each input; None is passed over.
    cotangents: of the outputs.
    scale: added to a gradient's norm, what its error is relative to.
    bound: of the relative error.
  """
  rng = np.random.default_rng(1)
  for n, gradient in enumerate(gradients):
    if gradient is None:
      continue
    for _ in range(3):
      along = rng.normal(size=inputs[n].shape)
      ends = []
      for step in (BY * along, -BY * along):
        moved = [x + step if m == n else x for m, x in enumerate(inputs)]
        ends.append(total(oracle(*moved), cotangents))
      want = (ends[0] - ends[1]) / (2 * BY)
      got = (np.float64(gradient) * along).sum()
      size = np.linalg.norm(gradient) + scale
      assert abs(got - want) < bound * size, (n, got, want)
