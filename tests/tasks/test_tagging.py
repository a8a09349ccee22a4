"""A recurrence learns to count; its state is what longer texts need."""

import json

import pytest

import rnn_jax
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import word_problem
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import generate
from rnn_jax.inference import predict
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import bundles
from tests.support import launchers
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
  raw.train.update(steps=150, checkpoint_every=150, log_every=50, seed=2)
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
  zero, one = map(chr, (word_problem.FIRST, word_problem.FIRST + 1))
  named = str.maketrans('01', zero + one)
  text, want = (x.translate(named) for x in ('0110100', '0100111'))
  assert rnn_jax.load(tmp_path).predict(text)[0].labels == want


def test_commands_that_write_say_which_one_labels():
  with pytest.raises(
    errors.InputError, match='predicts labels, not text: call'
  ):
    generate.check_writes(config_lib.parse(raw_config()))


TEXTS = ['0', '0110100110010', '', '11', '01101']


@pytest.fixture(scope='module', name='bundle')
def _bundle():
  return bundles.make(raw_config(), tokenizer_lib.Characters('.01='), seed=1)


def test_labels_are_the_most_likely_after_each_character(bundle, tmp_path):
  bundle_lib.write(bundle, tmp_path / 'run')
  model = rnn_jax.load(tmp_path / 'run')
  together = model.predict(TEXTS)
  assert [x.label for x in together] == [None] * len(TEXTS)
  for text, got in zip(TEXTS, together, strict=True):
    ids = [bundle.tokenizer.boundary, *bundle.tokenizer.encode(text)]
    logits_LxV = bundles.logits(bundle, [ids])[0]
    want = ['.01='[n] for n in logits_LxV[1:, :4].argmax(-1)]
    assert got.labels == ''.join(want)
    assert model.predict(text) == [got]
  assert len({*together[1].labels}) > 1


def test_rows_of_a_file_get_labels(bundle, tmp_path):
  bundle_lib.write(bundle, tmp_path / 'run')
  lines = ''.join(f'{{"text": "{x}", "labels": "mine"}}\n' for x in TEXTS)
  flags = f'--workdir={tmp_path / "run"}', '--input=-'
  code, out, err = launchers.run('predict', *flags, stdin=lines)
  assert code == 0, err
  for row, text in zip(map(json.loads, out.splitlines()), TEXTS, strict=True):
    assert [*row] == ['id', 'text', 'input_labels', 'labels']
    assert row['text'] == text and len(row['labels']) == len(text)


def test_texts_that_cannot_be_labeled_are_refused(bundle, tmp_path):
  bundle_lib.write(bundle, tmp_path / 'run')
  with pytest.raises(errors.InputError, match="outside the vocabulary: '2'"):
    rnn_jax.load(tmp_path / 'run').predict('012')
  raw = raw_config()
  raw.model.positions = 'learned'
  raw.evaluate.length = 8
  learned = bundles.make(raw, bundle.tokenizer)
  predictor = predict.Predictor(
    learned.config, learned.tokenizer, learned.params
  )
  assert len(predictor.predict(['0101010'])[0].labels) == 7
  with pytest.raises(
    errors.InputError, match='text 0 has 8 characters, .* for 7: shorten it'
  ):
    predictor.predict(['01010101'])
