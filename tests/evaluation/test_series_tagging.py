"""Scores of labels of steps are scikit-learn's, over labelled steps."""

import numpy as np
import pytest
from sklearn import metrics

from rnn_jax.evaluation import series_tagging

CLASSES = 'a', 'b', 'c'


def test_scores_are_scikit_learn_s():
  rng = np.random.default_rng(0)
  rows, labels, predicted = [], [], []
  for n in range(7):
    true, made = rng.choice(CLASSES, (2, 5 + n)).tolist()
    labels += true[1:]
    predicted += made[1:]
    rows.append({'labels': [None, *true[1:]], 'predicted': made})
  got = series_tagging.scores(rows, CLASSES)
  assert got['accuracy'] == pytest.approx(
    metrics.accuracy_score(labels, predicted)
  )
  assert got['macro_f1'] == pytest.approx(
    metrics.f1_score(labels, predicted, average='macro')
  )
  assert got['balanced_accuracy'] == pytest.approx(
    metrics.balanced_accuracy_score(labels, predicted)
  )
  table = metrics.confusion_matrix(labels, predicted, labels=CLASSES)
  assert np.array_equal(np.array(got['confusion_matrix'])[:, :-1], table)
  low, high = got['intervals']['accuracy']
  assert low < got['accuracy'] < high
