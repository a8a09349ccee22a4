"""Learning rates after a warm-up against their closed forms in NumPy."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import schedule

STEPS, PEAK, FINAL, LOW = 200, 2e-3, 1e-4, 4e-4


def config(name, warmup, **changes):
  raw = config_lib.default()
  raw.train.steps = STEPS
  raw.optimizer.learning_rate = PEAK
  raw.schedule.update(name=name, warmup_steps=warmup)
  for key, value in (('final', FINAL), ('low', LOW)):
    if (key := f'{key}_learning_rate') in raw.schedule:
      raw.schedule[key] = value
  raw.schedule.update(changes)
  return config_lib.parse(raw)


def line(begin, end, fraction):
  return begin + (end - begin) * fraction


def triangle(t, cycle):
  """Smith's (2017): his `stepsize` is half of a cycle."""
  size = cycle / 2
  number = np.floor(1 + t / cycle)
  x = np.abs(t / size - 2 * number + 1)
  return LOW + (PEAK - LOW) * max(0, 1 - x)


def restarted(t, cycle):
  """A cosine from the peak to the final rate, t mod cycle steps after it."""
  return FINAL + (PEAK - FINAL) * (1 + np.cos(np.pi * (t % cycle) / cycle)) / 2


CASES = {  # name, warm-up, other keys: the rate t steps after the warm-up
  'constant': ('constant', 20, {}, lambda t: PEAK),
  'linear': ('linear', 20, {}, lambda t: line(PEAK, FINAL, t / 180)),
  'inverse_sqrt': (
    'inverse_sqrt',
    20,
    {},
    lambda t: PEAK * np.sqrt(20) / np.sqrt(20 + t),
  ),
  'inverse_sqrt, no warm-up': (
    'inverse_sqrt',
    0,
    {},
    lambda t: PEAK / np.sqrt(1 + t),
  ),
  'stable_decay': (
    'stable_decay',
    20,
    {'decay_steps': 50},
    lambda t: PEAK if t < 130 else line(PEAK, FINAL, (t - 130) / 50),
  ),
  'stable_decay, a tenth': (
    'stable_decay',
    0,
    {},
    lambda t: PEAK if t < 180 else line(PEAK, FINAL, (t - 180) / 20),
  ),
  'exponential_rise': (
    'exponential_rise',
    0,
    {},
    lambda t: LOW * (PEAK / LOW) ** (t / (STEPS - 1)),
  ),
  'cyclical': ('cyclical', 0, {'cycle_steps': 50}, lambda t: triangle(t, 50)),
  'cyclical, odd': (
    'cyclical',
    0,
    {'cycle_steps': 33},
    lambda t: triangle(t, 33),
  ),
  'cyclical, a fifth': ('cyclical', 0, {}, lambda t: triangle(t, 40)),
  'cosine_restarts': (
    'cosine_restarts',
    20,
    {'cycle_steps': 33},
    lambda t: restarted(t, 33),
  ),
  'cosine_restarts, a fifth': (
    'cosine_restarts',
    0,
    {},
    lambda t: restarted(t, 40),
  ),
  'one_cycle': (
    'one_cycle',
    0,
    {'cycle_steps': 160},
    lambda t: triangle(t, 160) if t < 160 else line(LOW, FINAL, (t - 160) / 40),
  ),
  'one_cycle, nine tenths': (
    'one_cycle',
    0,
    {},
    lambda t: triangle(t, 180) if t < 180 else line(LOW, FINAL, (t - 180) / 20),
  ),
}


@pytest.mark.parametrize('case', CASES)
def test_every_step_has_the_rate_of_the_closed_form(case):
  name, warmup, changes, reference = CASES[case]
  made = schedule.make(config(name, warmup, **changes))
  rates = jax.jit(jax.vmap(made.rate))(np.arange(STEPS))
  expected = [PEAK * (n + 1) / warmup for n in range(warmup)]
  expected += [reference(t) for t in range(STEPS - warmup)]
  np.testing.assert_allclose(rates, expected, rtol=2e-5)
  assert made.rescale is None


def test_an_exponential_rise_has_no_limits_but_those_of_its_rates():
  raw = config_lib.default()
  raw.train.steps = 3
  raw.optimizer.learning_rate = 1e38
  raw.schedule.update(name='exponential_rise', warmup_steps=0)
  raw.schedule.low_learning_rate = 1e-37
  made = schedule.make(config_lib.parse(raw))
  rates = jax.jit(jax.vmap(made.rate))(np.arange(3))
  np.testing.assert_allclose(rates, (1e-37, 10**0.5, 1e38), rtol=1e-4)


def test_a_stable_rate_does_not_depend_on_the_number_of_steps():
  rates = []
  for steps in (100, 200):
    raw = config_lib.default()
    raw.train.steps = steps
    raw.schedule.update(name='stable_decay', warmup_steps=10, decay_steps=20)
    made = schedule.make(config_lib.parse(raw))
    rates.append(jax.jit(jax.vmap(made.rate))(np.arange(80)))
  np.testing.assert_array_equal(*rates)
