"""Classifiers of texts that are linear in counts of words, as a yardstick.

Multinomial naive Bayes, and NBSVM: a linear support vector machine on binary
features that are scaled by their log-count ratios r, its weights w replaced by
(1 - b) mean|w| + b w (Wang and Manning, "Baselines and Bigrams: Simple, Good
Sentiment and Topic Classification", 2012). 'tokens of the config' is naive
Bayes on the tokens of configs/rotten_tomatoes.py: what `task.evidence` starts a
network from, without the network. A linear SVM on binary features learns
questions of any number of classes from the training and validation split that
configs/text_classification.py makes of one file, and is asked its test split.
Nothing is timed.

  BENCHMARK_DATA=reviews=train.jsonl:text,held_out=validation.jsonl:text \
    python -m benchmarks.run --suite=text_baselines --only='naive|NBSVM'
  BENCHMARK_DATA=questions=trec.jsonl:text \
    python -m benchmarks.run --suite=text_baselines --only='linear SVM'
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import datasets
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

WORDS = r"(?u)[\w']+|[^\w\s]"  # and punctuation
UNITS = {  # and the shortest and the longest run of them
  'words': ('word', (1, 1)),
  'words and pairs': ('word', (1, 2)),
  '3 to 7 characters': ('char', (3, 7)),
}
MODELS = {'multinomial naive Bayes': 'naive_bayes', 'NBSVM': 'nbsvm'}
PENALTY, INTERPOLATION = 1.0, 0.25  # of NBSVM, the published ones
TRAIN, HELD_OUT, QUESTIONS = 'reviews', 'held_out', 'questions'
MACHINE = 'linear SVM'  # of questions
COLUMNS = {
  'accuracy': lambda row: f'{row["accuracy"]:.4f}',
  'macro F1': lambda row: f'{row["macro_f1"]:.4f}',
  'features': lambda row: f'{row["features"]:,}',
  'trained on': lambda row: f'{row["texts"]:,}',
  'asked': lambda row: f'{row["asked"]:,}',
}


def cases(quick: bool) -> list[case.Case]:
  """Each classifier on the two files of BENCHMARK_DATA."""
  del quick  # they take seconds
  linear = [
    case.Case(
      f'{name}, {units}',
      'suites.text_baselines.accuracy',
      {'model': model, 'units': units},
      repeats=0,
    )
    for name, model in MODELS.items()
    for units in UNITS
  ]
  tokens = case.Case(
    'naive Bayes, tokens of the config',
    'suites.text_baselines.of_tokens',
    repeats=0,
  )
  machines = [
    case.Case(
      f'{MACHINE}, {units}',
      'suites.text_baselines.of_questions',
      {'units': units},
      repeats=0,
    )
    for units in ('words', 'words and pairs')
  ]
  return [*linear, tokens, *machines]


def accuracy(model: str, units: str) -> tables.Row:
  """Trains on one file and counts right answers on the other."""
  (texts, labels), (asked, wanted) = _labelled(TRAIN), _labelled(HELD_OUT)
  fit = {'naive_bayes': _naive_bayes, 'nbsvm': _nbsvm}[model]
  answers, features = fit(texts, labels, asked, units)
  return _row(answers, wanted, texts, features)


def of_tokens() -> tables.Row:
  """As `accuracy`, by the evidence table of configs/rotten_tomatoes.py."""
  import tempfile

  import numpy as np

  from benchmarks.workloads import configs
  from rnn_jax.data import corpus as corpus_lib
  from rnn_jax.tasks import classification

  with tempfile.TemporaryDirectory() as folder:
    paths = {
      f'data.{key}': datasets.overrides(name, folder)['path']
      for key, name in (('path', TRAIN), ('validation_path', HELD_OUT))
    }
    config = configs.parse('rotten_tomatoes', overrides=paths)
    corpus = corpus_lib.Corpus.open(config, folder)
    table_VxC = classification.evidence(corpus, config.data)
    documents = corpus.documents['validation']
    maker = corpus.examples(config.data, 'validation')
    answers = []
    for n in range(len(documents)):
      ids = maker.question(n)
      answers.append(int(table_VxC[np.maximum(ids, ~ids)].sum(0).argmax()))
    texts = range(len(corpus.documents['train']))
    return _row(answers, list(documents.labels), texts, len(table_VxC))


def of_questions(units: str) -> tables.Row:
  """Trains on the splits of configs/text_classification.py but the test's."""
  import tempfile

  from sklearn import svm

  from benchmarks.workloads import configs
  from rnn_jax.data import corpus as corpus_lib
  from rnn_jax.training import resolve

  with tempfile.TemporaryDirectory() as folder:
    data = datasets.overrides(QUESTIONS, folder)
    config = configs.parse(
      'text_classification',
      overrides={f'data.{key}': value for key, value in data.items()},
    )
    documents = corpus_lib.load_documents(resolve.of_data(config))
    splits = {
      name: ([each.read(n).decode() for n in range(len(each))], each.labels)
      for name, each in documents.items()
    }
  texts = splits['train'][0] + splits['validation'][0]
  labels = [*splits['train'][1], *splits['validation'][1]]
  asked, wanted = splits['test']
  counts = _counter(units, binary=True)
  machine = svm.LinearSVC(C=PENALTY, random_state=0).fit(
    counts.fit_transform(texts), labels
  )
  answers = machine.predict(counts.transform(asked))
  return _row(answers, wanted, texts, len(counts.vocabulary_))


def _labelled(name: str) -> tuple[list[str], list[Any]]:
  """(texts, labels) of a file of BENCHMARK_DATA."""
  import json
  import pathlib
  import tempfile

  with tempfile.TemporaryDirectory() as folder:
    data = datasets.overrides(name, folder)
    lines = pathlib.Path(data['path']).read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  return [row[data['field']] for row in rows], [row['label'] for row in rows]


def _naive_bayes(texts, labels, asked, units):
  from sklearn import naive_bayes

  counts = _counter(units)
  model = naive_bayes.MultinomialNB().fit(counts.fit_transform(texts), labels)
  return model.predict(counts.transform(asked)), len(counts.vocabulary_)


def _nbsvm(texts, labels, asked, units):
  """Returns (answers, number of features), of two classes."""
  import numpy as np
  from sklearn import svm

  counts = _counter(units, binary=True)
  x, labels = counts.fit_transform(texts), np.asarray(labels)
  classes = np.unique(labels)
  p, q = (1 + np.asarray(x[labels == c].sum(0))[0] for c in classes[::-1])
  ratio = np.log(p / p.sum()) - np.log(q / q.sum())
  machine = svm.LinearSVC(C=PENALTY, random_state=0).fit(
    x.multiply(ratio).tocsr(), labels
  )
  weights = machine.coef_[0]
  even = np.abs(weights).mean()
  mixed = (1 - INTERPOLATION) * even + INTERPOLATION * weights
  scores = counts.transform(asked).multiply(ratio) @ mixed
  answers = classes[(scores + machine.intercept_[0] > 0).astype(int)]
  return answers, len(counts.vocabulary_)


def _counter(units, binary=False):
  from sklearn.feature_extraction import text as features

  unit, lengths = UNITS[units]
  return features.CountVectorizer(
    token_pattern=WORDS, analyzer=unit, ngram_range=lengths, binary=binary
  )


def _row(answers: Sequence, wanted: Sequence, texts, features):
  from sklearn import metrics

  return {
    'accuracy': float(metrics.accuracy_score(wanted, answers)),
    'macro_f1': float(metrics.f1_score(wanted, answers, average='macro')),
    'texts': len(texts),
    'asked': len(wanted),
    'features': features,
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Accuracy of each classifier, the best first, by what is classified."""
  del plots
  best = sorted(rows.items(), key=lambda x: -x[1].get('accuracy', 0))
  for what in ('reviews', 'questions'):
    own = {
      name: row
      for name, row in best
      if name.startswith(MACHINE) == (what == 'questions')
    }
    if own:
      yield tables.by_row(f'classifier of {what}', own, COLUMNS)
