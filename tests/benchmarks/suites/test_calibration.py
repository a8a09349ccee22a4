"""The model of a GPU's kernels: planted shares, and the rows it comes from."""

import random

import pytest

from benchmarks.harness import rows as rows_lib
from benchmarks.suites import calibration
from rnn_jax.profiling import kernel_times

PLANTED = {'matmul': 0.6, 'memory': 0.8, 'kernel': 0.3, 'launch': 4e-6}


def planted(count):
  """Programs that take exactly what the planted model says."""
  drawn = random.Random(0)
  found = []
  for _ in range(count):
    limits = {kind: drawn.uniform(1e-4, 1e-2) for kind in calibration.KINDS}
    point = calibration.Point(limits, drawn.randint(1, 2000), 0.0, 0.0)
    seconds = calibration.predict(point, PLANTED)
    found.append(point._replace(measured=seconds))
  return found


def test_the_fit_finds_what_was_planted():
  some = planted(12)
  assert calibration.fit(some) == pytest.approx(PLANTED, rel=1e-3)


def test_an_error_is_by_how_much_the_larger_exceeds():
  some = [calibration.Point({}, 1, x, 1.0) for x in (1.0, 0.5, 1.1)]
  assert calibration.error(some) == pytest.approx((0.1, 1.0))


def test_the_error_beside_predictions_is_that_of_the_rows():
  (rows,) = calibration.select(rows_lib.read('calibration')).values()
  found = calibration.error([*calibration.points(rows).values()])
  assert found == pytest.approx(kernel_times.ERROR, abs=0.01)
