"""Predicts the labels of the steps of series of a split, and scores them.

Accuracy, macro-F1 and balanced accuracy are over labelled steps. Steps of a
series depend on each other: their intervals draw whole series.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax.data.series import labelled
from rnn_jax.evaluation import intervals
from rnn_jax.evaluation import labelled_series
from rnn_jax.training import evaluate


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each of the first `limit` series of a split (0: all).

  Keys: name, labels (None where a step has none) and predicted, of each step.
  """
  classes = run.config.data.classes
  return [
    {
      'name': name,
      'labels': [
        None if x == labelled.UNLABELLED else classes[int(x)] for x in targets_T
      ],
      'predicted': [*prediction.labels],
    }
    for name, targets_T, prediction in labelled_series.predictions(
      run, split, limit
    )
  ]


def score_run(
  run: evaluate.Run, predictions: Sequence[dict[str, Any]], scorer: None
) -> dict[str, Any]:
  """Returns the `scores` of a run's predictions; there is no `scorer`."""
  del scorer
  return scores(predictions, run.config.data.classes)


def scores(
  predictions: Sequence[dict[str, Any]], classes: Sequence[str]
) -> dict[str, Any]:
  """Returns the scores of predictions, with 'intervals' of 95 %."""
  number = {name: n for n, name in enumerate(classes)}
  counts_NxCxC = np.zeros((len(predictions), len(classes), len(classes)), int)
  for n, row in enumerate(predictions):
    for label, predicted in zip(row['labels'], row['predicted'], strict=True):
      if label is not None:
        counts_NxCxC[n, number[label], number[predicted]] += 1
  made = {'accuracy': accuracy, 'macro_f1': macro_f1}
  made['balanced_accuracy'] = balanced_accuracy
  total_CxC = counts_NxCxC.sum(0)
  return {name: of(counts_NxCxC) for name, of in made.items()} | {
    'f1': dict(zip(classes, f1(total_CxC).tolist(), strict=True)),
    'classes': [*classes, '(none)'],
    'confusion_matrix': np.pad(total_CxC, [(0, 0), (0, 1)]).tolist(),
    'intervals': {
      name: intervals.percentile(
        lambda drawn, of=of: of(counts_NxCxC[drawn]),
        np.arange(len(predictions)),
      )
      for name, of in made.items()
    },
  }


def accuracy(counts_NxCxC: np.ndarray) -> float:
  """Returns the share of right labels, given counts by label and prediction."""
  total_CxC = counts_NxCxC.sum(0)
  return float(np.trace(total_CxC) / max(total_CxC.sum(), 1))


def macro_f1(counts_NxCxC: np.ndarray) -> float:
  """Returns the mean F1 of classes."""
  return float(np.mean(f1(counts_NxCxC.sum(0))))


def balanced_accuracy(counts_NxCxC: np.ndarray) -> float:
  """Returns the mean recall of the classes that steps have."""
  total_CxC = counts_NxCxC.sum(0)
  labels_C = total_CxC.sum(1)
  seen = labels_C > 0
  return float(np.mean(np.diag(total_CxC)[seen] / labels_C[seen]))


def f1(counts_CxC: np.ndarray) -> np.ndarray:
  """Returns F1 of each class; 0 of one that no step has and none is given."""
  both_C = counts_CxC.sum(0) + counts_CxC.sum(1)
  return 2 * np.diag(counts_CxC) / np.maximum(both_C, 1)
