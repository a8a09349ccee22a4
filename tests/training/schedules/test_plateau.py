"""When evaluations lower the rate, and how far."""

import numpy as np

from rnn_jax.training import schedule
from tests.training import test_schedule


def scales(losses, **changes):
  """Returns the scale after each evaluation of a run without a warm-up."""
  config = test_schedule.config(0, name='plateau', **changes)
  rescale = schedule.make(config).rescale
  scale, best, since, values = 1.0, np.inf, 0, []
  for step, loss in enumerate(losses, 1):
    since = 0 if loss < best else since + 1
    best = min(best, loss)
    scale = rescale(step, scale, since)
    values.append(scale)
  return values


def test_evaluations_without_a_new_best_lower_the_rate():
  losses = [5, 4, 4, 4.5, 3, 3, 3, 3, 3, 2]
  values = scales(losses, patience=2, factor=0.5)
  assert values == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]


def test_a_new_best_raises_the_rate_up_to_the_peak():
  losses = [5, 5, 5, 5, 4, 3, 3, 2, 1]
  values = scales(losses, patience=1, factor=0.5, rise=1.5)
  expected = [1, 0.5, 0.25, 0.125, 0.1875, 0.28125, 0.140625]
  np.testing.assert_allclose(values, [*expected, 0.2109375, 0.31640625])
  assert scales([3, 3, 2, 1], patience=1, factor=0.5, rise=3.0)[2:] == [1, 1]


def test_a_run_that_improves_keeps_its_rate():
  assert scales(range(50, 0, -1), patience=1) == [1] * 50


def test_the_final_rate_is_the_least():
  values = scales([1] * 6, patience=1, factor=0.3)  # the final rate is a tenth
  np.testing.assert_allclose(values, [1, 0.3, 0.1, 0.1, 0.1, 0.1])
