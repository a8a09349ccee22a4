"""The steps of epochs: as many batches as hold their tokens."""

import dataclasses

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.training import epochs
from rnn_jax.training import plots
from tests.support import corpora

EPOCHS, CHARACTERS, DOCUMENTS = 5, sum(corpora.SIZES), len(corpora.SIZES)


def resolved(corpus, cfg, count, multiple=1):
  train = config_lib.Train(steps=0, epochs=count)
  cfg = dataclasses.replace(cfg, train=train)
  cfg = epochs.resolve(cfg, corpus, multiple)
  config_lib.check(dataclasses.replace(cfg, given={'train.steps': 0}))
  return cfg


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_the_batches_of_the_steps_hold_the_epochs(tmp_path, layout):
  corpus, cfg = corpora.unique_corpus(tmp_path, layout=layout)
  steps = resolved(corpus, cfg, EPOCHS).train.steps
  batches = corpora.take(pipeline.training_batches(corpus, cfg), steps)
  tokens = sum(batch.weights_BxL.sum() for batch in batches)
  assert tokens == pytest.approx(EPOCHS * (CHARACTERS + DOCUMENTS), rel=0.06)


def test_stages_of_a_length_schedule_count_by_their_epochs(tmp_path):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout='packed', length_schedule=(6, 12)
  )
  tokens = CHARACTERS + DOCUMENTS
  rows = {1: 1 / 6, 1.5: 1 / 6 + 0.5 / 12, 4: 1 / 6 + 1 / 12 + 2 / 24}
  for count, each in rows.items():
    least = each * tokens / cfg.data.batch_size  # without any padding
    steps = resolved(corpus, cfg, count).train.steps
    assert least <= steps < 1.2 * least + 1


def test_other_options_are_checked_once_the_steps_are_known(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path)
  raw = config_lib.default()
  raw.train.update(steps=0, epochs=1.0)
  raw.schedule.update(name='stable_decay', warmup_steps=0, decay_steps=500)
  schedule = config_lib.parse(raw).schedule
  cfg = dataclasses.replace(cfg, schedule=schedule)
  with pytest.raises(errors.InputError, match='schedule.decay_steps=500: give'):
    resolved(corpus, cfg, 1.0)
  with pytest.raises(errors.InputError, match='train.steps=0: the data say'):
    plots.draw_schedule(config_lib.parse(raw), tmp_path / 'schedule.png')
