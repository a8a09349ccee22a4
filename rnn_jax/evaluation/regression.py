"""Predicts the numbers of series of a split, and scores them.

Beside the model are the mean and the median of the training targets, which a
model that has learned nothing predicts. R2 is 1 - sum e^2 / sum (y - mean y)^2
of the split, so that the split's own mean has 0.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import plots
from rnn_jax import tables
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples as examples
from rnn_jax.evaluation import intervals
from rnn_jax.evaluation import labelled_series
from rnn_jax.training import evaluate

MODEL, MEAN, MEDIAN = 'model', 'mean', 'median'
SCORES = 'rmse', 'mae', 'r2'
ERRORS = {
  'rmse': lambda error_N: float(np.sqrt(np.mean(error_N**2))),
  'mae': lambda error_N: float(np.mean(np.abs(error_N))),
}


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each of the first `limit` series of a split (0: all).

  Keys: name, label (the true number), predicted.
  """
  return [
    {
      'name': name,
      'label': float(targets_T[0]),
      'predicted': prediction.value,
    }
    for name, targets_T, prediction in labelled_series.predictions(
      run, split, limit
    )
  ]


def score_run(
  run: evaluate.Run, predictions: Sequence[dict[str, Any]], scorer: None
) -> dict[str, Any]:
  """Returns the scores of a run's predictions; there is no `scorer`.

  Key 'regressors' has a row for the model, the mean and the median, the others
  are those of the model.
  """
  del scorer
  y_N = np.array([row['label'] for row in predictions])
  f_N = np.array([row['predicted'] for row in predictions])
  rows = [_row(MODEL, y_N, f_N)]
  for name, number in _constants(run).items():
    rows.append(_row(name, y_N, np.full(len(y_N), number)))
  return rows[0] | {'regressors': rows}


def _constants(run):
  """Returns the mean and the median of the training targets, if it has them.

  A run on a file of its own has no training part, but the mean is its scale's.
  """
  scales, data = run.corpus.tokenizer, run.config.data
  found = {MEAN: examples.target_scale(scales, data).loc}
  documents = run.corpus.documents
  train = documents['train']
  if not any(x is train for name, x in documents.items() if name != 'train'):
    found[MEDIAN] = np.median(
      [labelled.content(train.read(n)).targets_T[0] for n in range(len(train))]
    )
  return found


def _row(name, y_N, f_N):
  edges = {
    score: intervals.percentile(of, y_N - f_N) for score, of in ERRORS.items()
  }
  return {'name': name, **scores(y_N, f_N), 'intervals': edges}


def scores(y_N: np.ndarray, f_N: np.ndarray) -> dict[str, float]:
  """Returns RMSE, MAE and R2 of predictions `f_N`; no R2 of equal numbers."""
  error_N = y_N - f_N
  found = {score: of(error_N) for score, of in ERRORS.items()}
  spread = float(np.sum((y_N - np.mean(y_N)) ** 2))
  if spread:
    found['r2'] = 1 - float(np.sum(error_N**2)) / spread
  return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """Returns the scores of regressors as lines."""
  shown = [score for score in SCORES if all(score in row for row in rows)]
  return '\n'.join(
    tables.of(rows, ('name', *(f'{s.upper()}={s}:.4g' for s in shown)))
  )


def draw_scores(row: Mapping[str, Any], path: pathlib.Path) -> None:
  """Draws the errors of each regressor, with 95 % intervals."""
  rows = row['regressors']
  figure, panels = plots.panels((7.2, 3.6), 1, 2)
  for axes, score in zip(panels[0], SCORES, strict=False):
    heights = np.array([each[score] for each in rows])
    edges = np.array([each['intervals'][score] for each in rows])
    whiskers = np.maximum([heights - edges[:, 0], edges[:, 1] - heights], 0)
    names = [each['name'] for each in rows]
    colors = [plots.BLUE if name == MODEL else '#bbbbbb' for name in names]
    axes.bar(names, heights, 0.6, color=colors)
    axes.errorbar(
      range(len(rows)), heights, whiskers, fmt='none', capsize=4, ecolor='k'
    )
    axes.set_ylabel(score.upper())
    plots.dress(axes, 'y')
  figure.suptitle(f'{row["split"]}, step {row["step"]}')
  plots.save(figure, path)
