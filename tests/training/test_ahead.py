"""A loop waits for the device, so that a stop waits for few steps."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import ahead as ahead_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import shared
from tests.support import tiny


@pytest.fixture
def waited(monkeypatch):
  """What is waited for, in order."""
  results, wait = [], jax.block_until_ready

  class Jax:
    @staticmethod
    def block_until_ready(result):
      results.append(result)
      return wait(result)

  monkeypatch.setattr(ahead_lib, 'jax', Jax)
  return results


def test_the_oldest_of_more_than_two_is_waited_for(waited):
  ahead = ahead_lib.Ahead()
  results = [{'loss': jnp.float32(n)} for n in range(5)]
  assert [ahead.wait(result) for result in results] == [0, 0, 1, 1, 1]
  assert waited == results[:3]
  assert ahead.finish() == 2 and ahead.finish() == 0
  assert waited == results


def test_training_and_evaluation_stay_two_ahead(waited, monkeypatch, tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.update(steps=8, log_every=8, checkpoint_every=8)
  raw.evaluate.update(every=8, batch_size=1)
  raw.sample.new_tokens = 0
  seen, evaluated = [], []
  monkeypatch.setattr(
    evaluate.ahead_lib.Ahead,
    'finish',
    lambda self, finish=ahead_lib.Ahead.finish: (
      evaluated.append(finish(self)) or evaluated[-1]
    ),
  )
  with shared.programs():
    loop.train(
      config_lib.parse(raw),
      tmp_path / 'run',
      hooks=[lambda trainer: seen.append((trainer.step, len(waited)))],
    )
  # The first step is waited for, as its time is reported.
  assert seen[:7] == [(n, max(n - ahead_lib.MAX_OWED, 1)) for n in range(1, 8)]
  assert evaluated[-1] <= ahead_lib.MAX_OWED < len(waited) - 8
