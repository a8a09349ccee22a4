"""Learning rates against their equations."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import resolve
from rnn_jax.training import schedule


def config(warmup, **changes):
  raw = config_lib.default()
  raw.train.steps = 20
  raw.schedule.warmup_steps = warmup
  raw.schedule.update(changes)
  return config_lib.parse(raw)


def reference_rate(settings, step):
  peak, last = 1e-3, 1e-4
  warmup, steps = settings.schedule.warmup_steps, settings.train.steps
  if step < warmup:
    return peak * (step + 1) / warmup
  fraction = (step - warmup) / (steps - warmup)
  return last + (peak - last) * (1 + np.cos(np.pi * fraction)) / 2


@pytest.mark.parametrize('warmup', (0, 1, 5, 20))
def test_the_rate_warms_up_and_falls_as_a_cosine(warmup):
  rate = schedule.make(config(warmup)).rate
  expected = [reference_rate(config(warmup), step) for step in range(20)]
  rates = jax.jit(jax.vmap(rate))(np.arange(20))
  np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_a_plateau_follows_a_warm_up():
  made = schedule.make(config(5, name='plateau', patience=2))
  rates = [float(made.rate(step)) for step in (0, 3, 4, 5, 19)]
  np.testing.assert_allclose(rates, [2e-4, 8e-4, 1e-3, 1e-3, 1e-3], rtol=1e-6)
  assert made.rescale(5, 1.0, 2) == 1.0  # the warm-up has just ended
  assert made.rescale(6, 1.0, 2) == 0.5


def test_a_cosine_is_not_scaled():
  assert schedule.make(config(5)).rescale is None


@pytest.mark.parametrize('name', ('cosine', 'constant', 'linear'))
def test_a_warm_up_longer_than_the_run_takes_half_of_it(name):
  made = schedule.make(config(300, name=name))
  fitting = schedule.make(config(10, name=name))
  for step in range(20):
    assert made.rate(step) == fitting.rate(step)
  line = resolve.describe(config(300, name=name), (resolve.WARMUP,))
  assert line == 'resolved schedule.warmup_steps=10 (from train.steps=20)'
  assert config(300).given['schedule.warmup_steps'] == 300
  assert resolve.describe(config(20, name=name), (resolve.WARMUP,)) == ''


def test_a_decay_needs_room_after_a_warm_up_that_is_shortened():
  config(300, name='stable_decay', decay_steps=10)
  with pytest.raises(errors.InputError, match='schedule.decay_steps=11'):
    config(300, name='stable_decay', decay_steps=11)
