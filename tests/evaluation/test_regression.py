"""Scores of numbers are scikit-learn's."""

import numpy as np
import pytest
from sklearn import metrics

from rnn_jax.evaluation import regression


def test_scores_are_scikit_learn_s():
  rng = np.random.default_rng(0)
  y, f = rng.normal(size=(2, 50))
  got = regression.scores(y, f)
  assert got['rmse'] ** 2 == pytest.approx(metrics.mean_squared_error(y, f))
  assert got['mae'] == pytest.approx(metrics.mean_absolute_error(y, f))
  assert got['r2'] == pytest.approx(metrics.r2_score(y, f))
  assert 'r2' not in regression.scores(np.ones(3), np.arange(3.0))


def test_a_table_has_what_all_rows_have(tmp_path):
  rows = [
    {
      'name': name,
      'rmse': 1.5,
      'mae': 1.0,
      'intervals': {'rmse': [1.0, 2.0], 'mae': [0.5, 1.5]},
    }
    for name in ('model', 'mean')
  ]
  text = regression.table(rows)
  assert 'RMSE' in text and 'R2' not in text
  row = {'regressors': rows, 'split': 'test', 'step': 3}
  regression.draw_scores(row, tmp_path / 'scores.png')
  assert (tmp_path / 'scores.png').stat().st_size
