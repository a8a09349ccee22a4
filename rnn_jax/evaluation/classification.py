"""Predicts classes of texts, images or series of a split, and scores them.

Accuracy counts every example alike, macro-F1 and balanced accuracy (the mean
recall of classes) every class. Classes are uneven where one has less than half
or more than twice its even share of the examples, 1 / C of C classes.

With task.answer 'word' a class counts as predicted if the written text is
exactly its name; any other text is an invalid output, and wrong. Scores are
scikit-learn's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.series import labelled
from rnn_jax.evaluation import intervals
from rnn_jax.evaluation import labelled_series
from rnn_jax.evaluation import reliability
from rnn_jax.inference import predict as predict_lib
from rnn_jax.system import activity
from rnn_jax.training import evaluate

INVALID = '(none)'
CHUNK = 1024  # documents in memory at a time
FEW, MANY = 0.5, 2.0  # even shares of a class that is uneven


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each of the first `limit` documents of a split (0: all).

  Keys: name, text (unless it is an image), label, predicted; 'probabilities',
  {class: p}, or 'written' if the model writes its answer.
  """
  documents, config = run.corpus.documents[split], run.config
  predictor = _predictor(run)
  names, rows = documents.names, []
  for numbers, contents in _chunks(run, split, limit):
    answers = predictor.predict(contents)
    for n, content, answer in zip(numbers, contents, answers, strict=True):
      label = config.data.classes[documents.labels[n]]
      text = {'text': content.decode()} if type(content) is bytes else {}
      rows.append({'name': names[n], **text, 'label': label, **_row(answer)})
  return rows


def logits(run: evaluate.Run, split: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns (logits_NxC, labels_N) of a split.

  Raises:
    InputError: it is empty.
  """
  documents = run.corpus.documents[split]
  if not len(documents):
    errors.refuse(
      'split', split, 'it has no document: give a percentage in data.splits'
    )
  predictor = _predictor(run)
  rows = [predictor.logits(contents) for _, contents in _chunks(run, split, 0)]
  return np.concatenate(rows), np.asarray(documents.labels)


def _predictor(run):
  given = run.config, run.corpus.tokenizer, run.params, run.temperature
  return predict_lib.Predictor(*given)


def _chunks(run, split, limit):
  """Yields (numbers, contents) of the first `limit` documents (0: all)."""
  documents = run.corpus.documents[split]
  count = min(len(documents), limit or len(documents))
  with activity.doing('predicting', count, 'documents') as done:
    for begin in range(0, count, CHUNK):
      numbers = range(begin, min(begin + CHUNK, count))
      yield numbers, [_content(run.config, documents, n) for n in numbers]
      done(len(numbers))


def _content(config, documents, n):
  """Returns a document as the Predictor reads it."""
  content = documents.read(n)
  if config.task.series_label:
    read = labelled.content(content)
    return labelled_series.series_of(documents.name(n), read)
  if not config.task.reads_images:
    return content
  shape = images.shape(config.data.image)
  return np.frombuffer(content, np.uint8).reshape(shape)


def _row(answer):
  """Returns the columns of a Prediction."""
  if answer.written is None:
    return {'predicted': answer.label, 'probabilities': answer.probabilities}
  return {'predicted': answer.label, 'written': answer.written}


def score_run(
  run: evaluate.Run, predictions: Sequence[dict[str, Any]], scorer: None
) -> dict[str, Any]:
  """Returns the `scores` of a run's predictions; there is no `scorer`."""
  del scorer
  return scores(predictions, run.config.data.classes)


def scores(
  predictions: Sequence[dict[str, Any]], classes: Sequence[str]
) -> dict[str, Any]:
  """Returns the scores of predictions, with 'intervals' of 95 %.

  Those of 'f1' are a dict by class, as the scores are.
  """
  from sklearn import metrics  # takes long to import

  labels = np.array([classes.index(row['label']) for row in predictions])
  # An invalid output is one more class, which no text has.
  known = {name: n for n, name in enumerate(classes)}
  predicted = np.array(
    [known.get(row['predicted'], len(classes)) for row in predictions]
  )
  numbers = range(len(classes))
  each = metrics.f1_score(
    labels, predicted, labels=numbers, average=None, zero_division=0
  )
  table = metrics.confusion_matrix(
    labels, predicted, labels=range(len(classes) + 1)
  )
  edges = _intervals(classes, labels, predicted)
  row = {
    'accuracy': float(metrics.accuracy_score(labels, predicted)),
    'macro_f1': float(np.mean(each)),
    'balanced_accuracy': balanced_accuracy(labels, predicted),
    'uneven': uneven(labels, classes),
    'valid': float(np.mean(predicted < len(classes))),
    'f1': dict(zip(classes, map(float, each), strict=True)),
    'classes': [*classes, INVALID],
    'confusion_matrix': table[:-1].tolist(),  # rows: the label
    'intervals': edges,
  }
  if all(each.get('probabilities') for each in predictions):
    p_NxC = np.array(
      [[*each['probabilities'].values()] for each in predictions]
    )
    row |= _of_probabilities(p_NxC, labels, predicted == labels, edges)
  return row


def _of_probabilities(p_NxC, labels, hits_N, edges):
  """Returns scores of probabilities; adds an interval to `edges`."""
  missed_N = reliability.brier(p_NxC, labels)
  edges['brier'] = intervals.percentile(np.mean, missed_N)
  error = reliability.equal_width(p_NxC.max(-1), hits_N).error
  return {'brier': float(np.mean(missed_N)), 'ece': error}


def uneven(labels: np.ndarray, classes: Sequence[str]) -> str:
  """Returns how uneven the classes of examples are; '': they are even.

  That names the class whose share is furthest from the even one.
  """
  shares = np.bincount(labels, minlength=len(classes)) / len(labels)
  times = shares * len(classes)
  if times.min() >= FEW and times.max() <= MANY:
    return ''
  few = times.min() < FEW and times.min() * times.max() <= 1
  n = int(times.argmin() if few else times.argmax())
  return (
    f'{classes[n]} has {shares[n]:.1%} of the examples, and an even share is '
    f'{1 / len(classes):.1%}'
  )


def balanced_accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
  """Returns the mean recall of the classes that examples have."""
  counts = np.bincount(labels)
  hits = np.bincount(labels[labels == predicted], minlength=len(counts))
  return float(np.mean(hits[counts > 0] / counts[counts > 0]))


def f1(true: np.ndarray, predicted: np.ndarray) -> float:
  """Returns F1 of a class; each argument has a boolean per example."""
  hits = np.sum(true & predicted)
  return 2 * hits / max(np.sum(true) + np.sum(predicted), 1)


def _intervals(classes, labels, predicted):
  # scikit-learn's scores take milliseconds each, and there are 1,000 draws.
  numbers = range(len(classes))

  def macro_f1(labels, predicted):
    return np.mean([f1(labels == n, predicted == n) for n in numbers])

  return {
    'accuracy': intervals.percentile(np.mean, labels == predicted),
    'macro_f1': intervals.percentile(macro_f1, labels, predicted),
    'balanced_accuracy': intervals.percentile(
      balanced_accuracy, labels, predicted
    ),
    'valid': intervals.percentile(np.mean, predicted < len(classes)),
    'f1': {
      classes[n]: intervals.percentile(f1, labels == n, predicted == n)
      for n in numbers
    },
  }
