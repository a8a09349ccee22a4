"""A rate finder: what it reads off losses, and its steps of a real config."""

import os

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.experiments import rate_finder
from tests.support import launchers
from tests.support import tiny

STEPS = 30


def test_the_suggestion_is_a_tenth_of_the_rate_with_the_lowest_loss():
  # A bowl in the logarithm of the rate, lowest at step 80, with noise.
  rates = np.geomspace(1e-6, 10, 141)
  noise = np.random.default_rng(0).normal(0, 0.05, 141)
  losses = 2 + ((np.arange(141) - 80) / 40) ** 2 + noise
  found = rate_finder.Found(tuple(rates), tuple(losses), 1e-3)
  step = int(np.argmin(np.abs(rates - found.lowest)))
  assert abs(step - 80) <= 4
  assert found.suggestion == found.lowest / 10
  # A weighted mean of constants is that constant, its ends too.
  level = rate_finder.Found(tuple(rates[:5]), (3.0,) * 5, 1e-3)
  np.testing.assert_allclose(level.smoothed, 3.0, rtol=1e-12)


@pytest.fixture
def raw(tmp_path, monkeypatch):
  changes = rate_finder.CHANGES | {
    'train.steps': STEPS,
    'optimizer.learning_rate': 1e4,
  }
  monkeypatch.setattr(rate_finder, 'STEPS', STEPS)
  monkeypatch.setattr(rate_finder, 'CHANGES', changes)
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.checkpoint_dir = str(tmp_path / 'checkpoints')
  return raw


def test_rates_rise_until_the_loss_does_and_no_run_is_touched(
  raw, tmp_path, monkeypatch
):
  drawn, draw = [], rate_finder.draw
  monkeypatch.setattr(
    rate_finder,
    'draw',
    lambda found, path: drawn.append(found) or draw(found, path),
  )
  config = tiny.write_config(tmp_path / 'config.py', raw)
  before = {*os.listdir(tmp_path)}
  code, out, err = launchers.run(
    'train',
    f'--config={config}',
    f'--workdir={tmp_path / "run"}',
    f'--find_rate={tmp_path / "rates.png"}',
    '--config.optimizer.learning_rate=.02',
  )
  assert code == 0, err
  first, second, path = out.splitlines()
  assert first.startswith('optimizer.learning_rate=')
  assert '(the config has 0.02)' in first
  assert second.startswith('the loss, smoothed, is lowest at ')
  assert path == f'{tmp_path}/rates.png'
  assert (tmp_path / 'rates.png').stat().st_size > 5000
  assert {*os.listdir(tmp_path)} - before - {'__pycache__'} == {'rates.png'}
  (found,) = drawn
  # It ended early, where the loss rose.
  assert 5 < len(found.rates) < STEPS
  expected = np.geomspace(rate_finder.LOW, 1e4, STEPS)[: len(found.rates)]
  np.testing.assert_allclose(found.rates, expected, rtol=1e-3)
  assert np.isfinite(found.losses).all() and found.lowest < 1e3
  assert found.given == 0.02


@pytest.mark.parametrize('name', config_lib.names('training/optimizers'))
def test_every_optimizer_takes_the_rising_rate(name):
  raw = config_lib.default()
  config_lib.override(raw, {'optimizer.name': name})
  assert rate_finder._config(raw).optimizer.name == name


def test_what_a_rate_finder_cannot_run_is_refused_as_its_own(raw):
  raw.pruning.update(sparsity=0.5, end_step=STEPS + 1)
  with pytest.raises(errors.InputError, match='--find_rate: pruning.end_step'):
    rate_finder.find(raw)
