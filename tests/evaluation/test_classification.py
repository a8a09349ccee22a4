"""Scores counted by hand; predictions of small models, both ways to answer."""

import json
from unittest import mock

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.text import documents
from rnn_jax.data.text import tokenizer
from rnn_jax.evaluation import classification
from rnn_jax.evaluation import run as run_lib
from rnn_jax.inference import predict as predict_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import corpora
from tests.support import shared
from tests.support import tiny

TRUE = 'aaaabbbbcc'
PREDICTED = ['a', 'a', 'b', None, 'b', 'b', 'b', 'a', 'c', 'b']


def predictions(labels=TRUE, predicted=PREDICTED):
  return [
    {'label': label, 'predicted': p}
    for label, p in zip(labels, predicted, strict=True)
  ]


def test_scores_match_a_count_by_hand():
  scores = classification.scores(predictions(), ('a', 'b', 'c'))
  assert scores['accuracy'] == pytest.approx(6 / 10)
  assert scores['valid'] == pytest.approx(9 / 10)
  # F1 = 2 hits / (true + predicted): a 4/7, b 6/9, c 2/3.
  f1 = {'a': 4 / 7, 'b': 2 / 3, 'c': 2 / 3}
  assert scores['f1'] == pytest.approx(f1)
  assert scores['macro_f1'] == pytest.approx(sum(f1.values()) / 3)
  assert scores['confusion_matrix'] == [
    [2, 1, 0, 1],
    [1, 3, 0, 0],
    [0, 1, 1, 0],
  ]
  edges = {**scores['intervals']}
  recall = (2 / 4 + 3 / 4 + 1 / 2) / 3
  assert scores['balanced_accuracy'] == pytest.approx(recall)
  assert edges.keys() == {
    'accuracy', 'macro_f1', 'balanced_accuracy', 'valid', 'f1',
  }  # fmt: skip
  each = edges.pop('f1')
  assert each.keys() == f1.keys()
  for name, (low, high) in edges.items():
    assert low < scores[name] < high
  for name, (low, high) in each.items():
    assert 0 <= low < scores['f1'][name] < high <= 1
  assert json.loads(json.dumps(scores)) == scores


def test_f1_of_draws_is_scikit_learn_s():
  from sklearn import metrics  # takes long to import

  rng = np.random.default_rng(0)
  for chance in (0.0, 0.1, 0.5, 1.0):
    true, predicted = rng.random((2, 20)) < chance
    expected = metrics.f1_score(true, predicted, zero_division=0)
    assert classification.f1(true, predicted) == pytest.approx(expected)


def write_reviews(folder):
  """Texts whose class is one of their words."""
  rng = np.random.default_rng(0)
  for split, count in (('train', 64), ('validation', 16)):
    rows = []
    for n in range(count):
      words = [*rng.choice(['film', 'plot', 'cast'], 3), ('bad', 'good')[n % 2]]
      rng.shuffle(words)
      rows.append({'text': ' '.join(words), 'label': n % 2})
    path = folder / f'{split}.jsonl'
    path.write_text('\n'.join(map(json.dumps, rows)))


def train(folder, bidirectional=False, **task):
  write_reviews(folder)
  raw = tiny.raw_config(str(folder / 'train.jsonl'))
  raw.task.name = 'classification'
  raw.task.update(task)
  raw.data.source = 'jsonl'
  raw.data.validation_path = str(folder / 'validation.jsonl')
  raw.data.splits = (100, 0, 0)
  raw.data.classes = ('no', 'yes')
  raw.data.layout = 'packed'
  raw.evaluate.criterion = 'errors'
  raw.model.update(layers=1, embedding_scale=0.1, bidirectional=bidirectional)
  raw.optimizer.learning_rate = 3e-2
  raw.train.steps = 40
  raw.train.log_every = 40
  raw.evaluate.every = 0
  raw.train.checkpoint_every = 40
  workdir = folder / 'run'
  with shared.programs():
    loop.train(config_lib.parse(raw), str(workdir))
    return evaluate.Run.open(workdir), workdir


@pytest.mark.parametrize('answer', ('pooled', 'word'))
def test_a_trained_model_is_scored_and_written(answer, tmp_path):
  run, workdir = train(tmp_path, answer == 'pooled', answer=answer)
  limit = 5 if answer == 'word' else 0
  row = run_lib.evaluate_run(run, workdir, 'validation', limit=limit)
  assert row['valid'] == 1
  assert row['documents'] == 16 and row['predictions'] == (limit or 16)
  folder = workdir / 'evaluation' / 'validation'
  for name in ('scores.png', 'confusion_matrix.png'):
    assert (folder / name).stat().st_size > 5000
  assert json.loads((folder / 'scores.json').read_text()) == row
  lines = (folder / 'predictions.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  hits = [row['label'] == row['predicted'] for row in rows]
  assert np.mean(hits) == pytest.approx(row['accuracy'])
  assert rows[3]['name'] == 'validation.jsonl:4'
  assert 'good' in rows[3]['text'] and rows[3]['label'] == 'yes'
  if answer == 'pooled':
    assert row['accuracy'] > 0.9
    chosen = [max(row['probabilities'].values()) > 0.5 for row in rows]
    assert all(chosen)
    assert row['accuracy'] == pytest.approx(
      evaluate.evaluate_run(run, 'validation')['accuracy']
    )


def test_names_are_made_once(monkeypatch):
  made, names = [], documents.Documents.names.fget

  def counted(self):
    made.append(self)
    return names(self)

  texts = corpora.in_memory('a', 'b', 'c')
  texts.reader.labels = np.array([0, 1, 1])
  config = config_lib.Config(
    task=config_lib.section('task', name='classification'),
    data=config_lib.section('data', classes=('no', 'yes')),
  )
  corpus = corpus_lib.Corpus(config.task, {'test': texts}, tokenizer.Bytes())
  run = evaluate.Run(config, corpus, None, None, 0)
  monkeypatch.setattr(documents.Documents, 'names', property(counted))
  answers = [predict_lib.Prediction('no', {})] * 3
  monkeypatch.setattr(
    predict_lib, 'Predictor', lambda *_: mock.Mock(predict=lambda _: answers)
  )
  rows = classification.predict(run, 'test', 0)
  assert [row['name'] for row in rows] == ['0', '1', '2']
  assert len(made) == 1


@pytest.mark.parametrize(
  ('counts', 'named'),
  (
    ((50, 50), ''),
    ((75, 25), ''),
    ((76, 24), 'b has 24.0% of the examples, and an even share is 50.0%'),
    ((0, 9), 'a has 0.0% of the examples'),
    ((30, 30, 30, 10), 'd has 10.0% of the examples, and an even share is 25'),
    ((60, 14, 13, 13), 'a has 60.0% of the examples, and an even share is 25'),
  ),
)
def test_uneven_classes_are_named(counts, named):
  labels = np.repeat(np.arange(len(counts)), counts)
  given = classification.uneven(labels, 'abcd'[: len(counts)])
  assert given.startswith(named) and bool(given) == bool(named)


def test_macro_scores_are_first_where_classes_are_uneven():
  from sklearn import metrics  # takes long to import

  even = classification.scores(predictions(), ('a', 'b', 'c'))
  rare = predictions('aaaaaaaaab', [*'aaaaaaaabb'])
  uneven = classification.scores(rare, ('a', 'b'))
  assert even['uneven'] == '' and uneven['uneven']
  names = [
    [line.split()[0] for line in run_lib.table(row).splitlines()]
    for row in (even, uneven)
  ]
  assert names[0][0] == 'accuracy'
  assert names[1][:3] == ['macro', 'macro_f1', 'balanced']
  assert sorted(names[0]) == sorted(names[1][1:])
  assert uneven['balanced_accuracy'] == pytest.approx((8 / 9 + 1) / 2)
  wanted = metrics.balanced_accuracy_score([*TRUE], [str(x) for x in PREDICTED])
  assert even['balanced_accuracy'] == pytest.approx(wanted)
