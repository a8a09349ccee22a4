"""Replies and their scores, on dialogues that a small model learns."""

import json
import sys

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data import documents
from rnn_jax.evaluation import dialogue
from rnn_jax.evaluation import run as run_lib
from rnn_jax.training import evaluate
from tests import dialogues

TURNS = dialogues.TURNS


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  workdir = dialogues.train(tmp_path_factory.mktemp('dialogue'))
  return evaluate.Run.open(workdir), workdir


def test_each_reply_is_written_behind_the_turns_as_they_were(trained):
  run, workdir = trained
  row = run_lib.evaluate_run(run, workdir, 'validation', limit=2)
  lines = (workdir / 'evaluation/validation/predictions.jsonl').read_text()
  rows = [json.loads(line) for line in lines.splitlines()]
  assert [r['turn'] for r in rows] == [1, 2, 3] * 2
  assert [r['reference'] for r in rows] == TURNS[1:] * 2
  assert rows[1]['history'] == TURNS[:2]
  assert [r['predicted'] for r in rows] == TURNS[1:] * 2
  for name in ('rouge1', 'rougeL', 'valid'):
    assert row[name] == pytest.approx(1)
  assert row['perplexity'] < 1.2


def test_names_are_made_once(trained, monkeypatch):
  made, names = [], documents.Documents.names.fget

  def counted(self):
    made.append(self)
    return names(self)

  monkeypatch.setattr(documents.Documents, 'names', property(counted))
  run, _ = trained
  assert len(dialogue.predict(run, 'validation', 2)) == 6
  assert len(made) == 1


def test_the_interval_of_bleu_is_that_of_resampled_corpora(monkeypatch):
  rows = [
    {'reference': 'a b c d e f', 'predicted': 'a b c d e f'},
    {'reference': 'g h i j k l', 'predicted': 'u v w x y z'},
  ]
  # A quarter of the corpora of two has the first twice, one the second.
  assert dialogue.scores(rows)['intervals']['bleu'] == pytest.approx([0, 1])
  rng, words = np.random.default_rng(0), [*'abcd.,']
  drawn = [rng.choice(words, rng.integers(1, 9)) for _ in range(80)]
  texts = [' '.join(found) for found in drawn]
  pairs = zip(texts[:40], texts[40:], strict=True)
  rows = [{'reference': r, 'predicted': p} for r, p in pairs]
  monkeypatch.setattr(
    dialogue.intervals,
    'percentile',
    lambda statistic, *columns: float(statistic(*columns)),
  )
  scores = dialogue.scores(rows)
  assert 0.01 < scores['bleu'] < 0.99
  assert scores['intervals']['bleu'] == pytest.approx(scores['bleu'])


def test_scores_tell_a_good_reply_from_a_bad_one():
  references = ['the cat sat on the mat today', 'i like this very much indeed']
  rows = [{'reference': r, 'predicted': r} for r in references]
  assert dialogue.scores(rows)['bleu'] == pytest.approx(1)
  rows[1]['predicted'] = ''
  scores = dialogue.scores(rows)
  assert scores['valid'] == 0.5
  assert scores['rouge1'] == scores['rouge2'] == scores['rougeL'] == 0.5
  assert 0 < scores['bleu'] < 1
  rows[1]['predicted'] = 'i like that very much'
  # 4 of 5 words and of 6 words: F = 2 * 4 / 11; bigrams 2 of 4 and of 5.
  scores = dialogue.scores(rows)
  assert scores['rouge1'] == pytest.approx((1 + 8 / 11) / 2)
  assert scores['rouge2'] == pytest.approx((1 + 4 / 9) / 2)


def test_bertscore_names_the_missing_package(monkeypatch):
  monkeypatch.setitem(sys.modules, 'bert_score', None)
  with pytest.raises(errors.InputError, match="--bertscore='m'.*pip install"):
    dialogue.bert_score([], 'm')
