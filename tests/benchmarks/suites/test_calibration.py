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
    point = calibration.Point(limits, drawn.randint(1, 2000), 0.0)
    seconds = calibration.predict(point, PLANTED)
    found.append(point._replace(measured=seconds))
  return found


def test_the_fit_finds_what_was_planted():
  some = planted(12)
  assert calibration.fit(some) == pytest.approx(PLANTED, rel=1e-3)
  ratios = calibration.left_out({str(n): p for n, p in enumerate(some)})
  assert [*ratios.values()] == pytest.approx([1] * 12, rel=1e-3)


def test_an_error_is_by_how_much_the_larger_exceeds():
  assert calibration.error([1.0, 0.5, 1.1]) == pytest.approx((0.1, 1.0))


def test_the_model_is_the_one_that_its_rows_give():
  (rows,) = calibration.select(rows_lib.read('calibration')).values()
  found = calibration.points(rows)
  model = calibration.fit([*found.values()])
  assert model.pop('launch') == pytest.approx(kernel_times.LAUNCH, abs=2e-7)
  assert model == pytest.approx(kernel_times.SHARES, abs=0.02)
  off = calibration.error([*calibration.left_out(found).values()])
  assert off == pytest.approx(kernel_times.ERROR, abs=0.02)
