"""Predicts classes of texts or images of a split, and scores them.

Accuracy and macro-F1 count every example. With task.answer 'word' a class
counts as predicted if the written text is exactly its name; any other text is
an invalid output, and wrong. Scores are scikit-learn's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics

from rnn_jax import activity
from rnn_jax.data.images import images
from rnn_jax.evaluation import intervals
from rnn_jax.inference import predict as predict_lib
from rnn_jax.training import evaluate

INVALID = '(none)'
CHUNK = 1024  # documents in memory at a time


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each of the first `limit` documents of a split (0: all).

  Keys: name, text (unless it is an image), label, predicted; 'probabilities',
  {class: p}, or 'written' if the model writes its answer.
  """
  documents, config = run.corpus.documents[split], run.config
  predictor = predict_lib.Predictor(config, run.corpus.tokenizer, run.params)
  count = min(len(documents), limit or len(documents))
  names, rows = documents.names, []
  with activity.doing('predicting', count, 'documents') as done:
    for begin in range(0, count, CHUNK):
      numbers = range(begin, min(begin + CHUNK, count))
      contents = [_content(config, documents.read(n)) for n in numbers]
      answers = predictor.predict(contents)
      for n, content, answer in zip(numbers, contents, answers, strict=True):
        label = config.data.classes[documents.labels[n]]
        text = {'text': content.decode()} if type(content) is bytes else {}
        rows.append({'name': names[n], **text, 'label': label, **_row(answer)})
      done(len(numbers))
  return rows


def _content(config, content):
  """Returns a document as the Predictor reads it."""
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
  return {
    'accuracy': float(metrics.accuracy_score(labels, predicted)),
    'macro_f1': float(np.mean(each)),
    'valid': float(np.mean(predicted < len(classes))),
    'f1': dict(zip(classes, map(float, each), strict=True)),
    'classes': [*classes, INVALID],
    'confusion_matrix': table[:-1].tolist(),  # rows: the label
    'intervals': _intervals(classes, labels, predicted),
  }


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
    'valid': intervals.percentile(np.mean, predicted < len(classes)),
    'f1': {
      classes[n]: intervals.percentile(f1, labels == n, predicted == n)
      for n in numbers
    },
  }
