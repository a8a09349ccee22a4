"""Held-out losses do not depend on how the split is batched."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import programs as programs_lib
from tests.support import tiny


def make(tmp_path, **data):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.update(data)
  return raw


@pytest.mark.parametrize('batch_size', (1, 3, 16))
def test_every_token_counts_once_whatever_the_batch(batch_size, tmp_path):
  raw = make(tmp_path, layout='stream', carry_state=True, segment_bytes=20)
  raw.evaluate.segment_bytes = 10**6  # else a state is zeroed within documents
  losses = []
  for rows, length in ((2, 32), (batch_size, 20)):
    raw.evaluate.batch_size = rows
    raw.evaluate.length = length
    config = config_lib.parse(raw)
    corpus = pipeline.Corpus.open(config, tmp_path / 'run')
    programs = programs_lib.from_config(config, corpus.tokenizer)
    params = programs.init(0, raw.data.batch_size).params
    values = evaluate.evaluate(programs, params, corpus, config, 'validation')
    documents = corpus.documents['validation']
    # Each document's end is predicted too.
    assert values['tokens'] == documents.total_bytes + len(documents)
    losses.append(values['loss'])
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_run_is_evaluated_from_its_folder(tmp_path):
  raw = make(tmp_path, layout='packed')
  raw.train.steps = 2
  config = config_lib.parse(raw)
  workdir = str(tmp_path / 'run')
  progress = loop.train(config, workdir)
  run = evaluate.Run.open(workdir)
  row = evaluate.evaluate_run(run, 'validation')
  assert row['loss'] == pytest.approx(progress.best_loss, rel=1e-6)
  assert row['step'] == 2
  assert row['gzip'] > 0 and row['xz'] > 0
  assert row['parameters'] == 11761
  assert evaluate.evaluate_run(run, '')['split'] == 'test'
  assert json.loads(json.dumps(row)) == row
  with pytest.raises(errors.InputError, match="--split='tset'.*'test'"):
    evaluate.evaluate_run(run, 'tset')
  with pytest.raises(errors.InputError, match='no checkpoint of step 7'):
    evaluate.Run.open(workdir, 7)


def test_an_empty_split_is_refused(tmp_path):
  raw = make(tmp_path, splits=(80, 20, 0))
  config = config_lib.parse(raw)
  corpus = pipeline.Corpus.open(config, tmp_path / 'run')
  programs = programs_lib.from_config(config, corpus.tokenizer)
  with pytest.raises(errors.InputError, match="split='test'"):
    evaluate.evaluate(programs, None, corpus, config, 'test')
