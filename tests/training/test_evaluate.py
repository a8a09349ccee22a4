"""Held-out losses do not depend on how the split is batched."""

import json

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.runs import metrics
from rnn_jax.runs import progress
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import programs as programs_lib
from tests.support import shared
from tests.support import tiny


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def make(tmp_path, **data):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.update(data)
  return raw


@pytest.mark.parametrize('batch_size', (1, 3, 16))
def test_every_token_counts_once_whatever_the_batch(batch_size, tmp_path):
  raw = make(tmp_path, layout='stream', carry_state=True, segment_tokens=20)
  raw.evaluate.segment_tokens = 10**6  # else a state is zeroed within documents
  losses = []
  for rows, length in ((2, 32), (batch_size, 20)):
    raw.evaluate.batch_size = rows
    raw.evaluate.length = length
    config = config_lib.parse(raw)
    corpus = corpus_lib.Corpus.open(config, tmp_path / 'run')
    programs = programs_lib.from_config(config, corpus.tokenizer)
    params = programs.states.init(raw.data.batch_size).params
    run = evaluate.Run(config, corpus, programs, params, 0)
    values = run.evaluate('validation')
    documents = corpus.documents['validation']
    # Each document's end is predicted too.
    assert values['tokens'] == documents.total_bytes + len(documents)
    losses.append(values['loss'])
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_part_of_a_split_is_read_evenly(tmp_path):
  raw = make(tmp_path, layout='padded')
  config = config_lib.parse(raw)
  corpus = corpus_lib.Corpus.open(config, tmp_path / 'run')
  whole, fraction = pipeline.heldout_windows(corpus, config, 'train', 0)
  assert fraction == 1 and [*whole] == [*range(len(whole))]
  windows = corpus.windows(config.data.heldout(config.evaluate), 'train')
  _, start, stop = windows.at(whole)
  sizes = stop - start - 1
  limit = int(sizes.sum()) // 3
  part, fraction = pipeline.heldout_windows(corpus, config, 'train', limit)
  assert fraction == len(part) / len(whole)
  assert 0.7 * limit < sizes[part].sum() < 1.3 * limit
  assert set(np.diff(part)) <= {2, 3, 4}
  read = sum(
    int(batch.weights_BxL.sum())
    for batch in pipeline.heldout_batches(corpus, config, 'train', tokens=limit)
  )
  assert read == sizes[part].sum()
  # More tokens than there are: nothing is left out.
  every, fraction = pipeline.heldout_windows(corpus, config, 'train', 10**9)
  assert fraction == 1 and len(every) == len(whole)


def test_a_few_examples_of_a_split_are_never_all_empty(tmp_path):
  raw = make(tmp_path, layout='padded')
  config = config_lib.parse(raw)
  corpus = corpus_lib.Corpus.open(config, tmp_path / 'run')
  sizes = [0, 5, 0, 0, 5, 0]

  class Examples:
    lengths = np.array(sizes) + 1

    def read(self, n, start, stop):
      return np.zeros(sizes[n] + 1, np.int32)[start:stop]

  object.__setattr__(corpus, 'examples', lambda *_: Examples())
  for tokens, count in ((1, 1), (3, 2)):
    part, _ = pipeline.heldout_windows(corpus, config, 'train', tokens)
    assert len(part) == count and all(sizes[n] for n in part)


def test_training_evaluates_a_part_and_says_so(tmp_path, capsys):
  raw = make(tmp_path, layout='packed')
  raw.train.steps = 2
  raw.evaluate.tokens = 60
  config = config_lib.parse(raw)
  loop.train(config, str(tmp_path / 'run'))
  (row,) = (
    row
    for row in metrics.read(tmp_path / 'run')
    if row['split'] == 'validation'
  )
  run = evaluate.Run.open(str(tmp_path / 'run'))
  whole = evaluate.evaluate_run(run, 'validation')
  part = evaluate.evaluate_run(run, 'validation', 60)
  assert whole['fraction'] == 1 and 0 < row['fraction'] < 1
  for key in ('fraction', 'tokens', 'loss'):
    assert part[key] == pytest.approx(row[key], rel=1e-6)
  assert 'gzip' in whole and 'gzip' not in part  # of another text
  assert 'of the split (evaluate.tokens)' in progress.evaluation_table(part)
  assert 'of the split' not in progress.evaluation_table(whole)


@pytest.mark.parametrize(
  ('tokens', 'trained', 'read'), ((0, 50, 0), (90, 50, 50), (90, 500, 90))
)
def test_a_short_training_has_a_short_evaluation(
  tmp_path, tokens, trained, read
):
  raw = make(tmp_path)
  raw.evaluate.tokens = tokens
  assert evaluate.tokens_after(config_lib.parse(raw), trained) == read


def test_a_run_is_evaluated_from_its_folder(tmp_path):
  raw = make(tmp_path, layout='packed')
  raw.train.steps = 2
  config = config_lib.parse(raw)
  workdir = str(tmp_path / 'run')
  trained = loop.train(config, workdir)
  run = evaluate.Run.open(workdir)
  row = evaluate.evaluate_run(run, 'validation')
  assert row['loss'] == pytest.approx(trained.best_loss, rel=1e-6)
  assert row['step'] == 2
  assert row['gzip'] > 0 and row['xz'] > 0
  assert row['parameters'] == 9857
  assert row['state_bytes'] == 4 * 2 * 2 * 4 * 4  # float32, layers, heads, K, P
  assert evaluate.evaluate_run(run, '')['split'] == 'test'
  assert json.loads(json.dumps(row)) == row
  with pytest.raises(errors.InputError, match="--split='tset'.*'test'"):
    evaluate.evaluate_run(run, 'tset')
  with pytest.raises(errors.InputError, match='no checkpoint of step 7'):
    evaluate.Run.open(workdir, 7)


def test_an_empty_split_is_refused(tmp_path):
  raw = make(tmp_path, splits=(80, 20, 0))
  config = config_lib.parse(raw)
  corpus = corpus_lib.Corpus.open(config, tmp_path / 'run')
  programs = programs_lib.from_config(config, corpus.tokenizer)
  with pytest.raises(errors.InputError, match="split='test'"):
    evaluate.Run(config, corpus, programs, None, 0).evaluate('test')
