"""A recurrence learns to count; its state is what longer texts need."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.inference import generate
from rnn_jax.inference import predict
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import shared


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def raw_config():
  raw = config_lib.default('lstm', task='tagging', source='word_problem')
  raw.data.update(tokenizer='characters', length=8, workers=0, batch_size=16)
  raw.data.boundaries = (8,)
  raw.data.word_problem.update(
    group='parity', length=8, test_length=16, examples=800
  )
  raw.model.update(layers=1, width=16, mlp_width=0)
  raw.optimizer.learning_rate = 0.06
  raw.schedule.warmup_steps = 10
  raw.train.update(steps=100, checkpoint_every=100, log_every=50)
  raw.evaluate.update(every=0, length=16)
  raw.sample.new_tokens = 0
  return raw


@pytest.mark.slow
def test_parity_is_learned_and_holds_on_longer_texts(tmp_path):
  config = config_lib.parse(raw_config())
  assert loop.train(config, tmp_path).finished == 'all steps'
  run = evaluate.Run.open(tmp_path)
  scores = evaluate.evaluate_run(run, 'validation')
  assert scores['tokens'] == 8 * 40 and scores['accuracy'] > 0.99
  assert scores['exact'] > 0.95 and 'bits_per_byte' not in scores
  longer = evaluate.evaluate_run(run, 'test')
  assert longer['tokens'] == 16 * 40 and longer['accuracy'] > 0.9


@pytest.mark.parametrize(
  ('key', 'value'),
  (
    ('data.tokenizer', 'bytes'),
    ('data.curriculum', 'rarity'),
    ('data.rarity_buckets', 2),
    ('remat.segment', 4),
  ),
)
def test_what_needs_single_tokens_is_refused(key, value):
  raw = raw_config()
  config_lib.override(raw, {key: value})
  with pytest.raises(
    errors.InputError,
    match=f"{key}={value!r}: it |{key}={value!r}: task.name='tagging' labels",
  ):
    config_lib.parse(raw)


@pytest.mark.parametrize(
  ('check', 'message'),
  (
    (generate.check_writes, 'writes no text: use launch.evaluate'),
    (predict.check_classifies, 'predicts no class of a text: use launch.eval'),
  ),
)
def test_commands_that_have_no_use_for_it_say_which_one_has(check, message):
  with pytest.raises(errors.InputError, match=message):
    check(config_lib.parse(raw_config()))
