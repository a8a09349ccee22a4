"""Whole answers are counted; a model learns to recall and writes answers."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.tasks import recall
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import shared


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def test_an_answer_is_right_when_all_of_it_is():
  asked = np.array([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)
  right = np.array([[0, 1, 1, 1, 0], [1, 1, 0, 1, 1], [1, 0, 1, 0, 1]], bool)
  scores = jax.jit(recall.count_answers)(right, asked)
  assert (scores['answers'], scores['exact']) == (3, 1)
  right[1, 2] = True
  assert recall.count_answers(right, asked)['exact'] == 2


def raw_config(cell, **options):
  raw = config_lib.default(cell)
  raw.cell.update(options)
  raw.task.name = 'recall'
  raw.data.source = 'recall'
  raw.data.tokenizer = 'characters'
  raw.data.length = 32
  raw.data.boundaries = (32,)
  raw.data.workers = 0
  raw.data.batch_size = 16
  raw.data.synthetic.update(pairs=2, distance=4, symbols=3, examples=400)
  raw.model.update(layers=1, width=16, mlp_width=0)
  raw.optimizer.learning_rate = 0.02
  raw.schedule.warmup_steps = 10
  raw.train.update(steps=100, checkpoint_every=100, log_every=50)
  raw.evaluate.every = 0
  return raw


@pytest.mark.slow
def test_a_model_trains_is_evaluated_and_writes(tmp_path):
  options = {'heads': 2, 'key_width': 8, 'value_width': 8}
  config = config_lib.parse(raw_config('simple_rnn', **options))
  progress = loop.train(config, tmp_path)
  assert progress.finished == 'all steps'
  run = evaluate.Run.open(tmp_path)
  scores = evaluate.evaluate_run(run, 'validation')
  assert scores['tokens'] == 2 * 20 and 'bits_per_byte' not in scores
  assert scores['exact'] == pytest.approx(scores['accuracy'])  # of one letter
  assert scores['exact'] > 0.6  # by chance: 1/3
  _answers_as_evaluated(tmp_path, config, scores)


def _answers_as_evaluated(workdir, config, scores):
  """Decoding from a prompt gives the answers that evaluation counted."""
  documents = corpus_lib.Corpus.open(config, workdir).documents['validation']
  texts = [documents.read(n).decode() for n in range(len(documents))]
  generator = generate.Generator.from_workdir(workdir)
  options = generate.Options(max_new_tokens=1, sampling=sampling.Sampling(0.0))
  written = generator.generate([text[:-1] for text in texts], options)
  right = [
    completion.text == text[-1]
    for completion, text in zip(written.completions, texts, strict=True)
  ]
  # The last answer of each text is half of all.
  assert abs(np.mean(right) - scores['exact']) < 0.3
  assert np.mean(right) > 0.5
