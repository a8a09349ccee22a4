"""Learning rates against their equations."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import schedules


def config(warmup):
  raw = config_lib.default()
  raw.train.steps = 20
  raw.schedule.warmup_steps = warmup
  return config_lib.parse(raw)


def reference_rate(settings, step):
  peak, last = 1e-3, 1e-4
  warmup, steps = settings.schedule.warmup_steps, settings.train.steps
  if step < warmup:
    return peak * (step + 1) / warmup
  share = (step - warmup) / (steps - warmup)
  return last + (peak - last) * (1 + np.cos(np.pi * share)) / 2


@pytest.mark.parametrize('warmup', (0, 1, 5, 20))
def test_the_rate_warms_up_and_falls_as_a_cosine(warmup):
  schedule = schedules.warmup_cosine(config(warmup))
  for step in range(20):
    expected = reference_rate(config(warmup), step)
    np.testing.assert_allclose(schedule(step), expected, rtol=1e-5)
