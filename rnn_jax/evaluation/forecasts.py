"""Forecasts the held-out readings of series, and compares them with naive ones.

Each held-out horizon of a series is forecast from the readings before it, one
after the other ("rolling origin"): the stream reads on to the next one. Series
are read together, with the bits that each has by itself. Scores and baselines
are those of evaluation/forecasting.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import plots
from rnn_jax.data.series import documents as series_lib
from rnn_jax.data.series import examples
from rnn_jax.evaluation.forecasting import comparison
from rnn_jax.evaluation.forecasting import forecasts as forecasts_lib
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.inference import series_widths
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import activity
from rnn_jax.training import evaluate

NAME = 'model'
TOGETHER = series_widths.WIDTHS[-1]  # series that are read together
SHOWN = 'smape', 'mase', 'rmsse', 'owa', 'wql', 'msis', 'coverage'


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each held-out horizon of the first `limit` series.

  Keys: name, origin (readings before it), readings (None where one is missing),
  point and quantiles, {level: numbers}; of several targets a dict for each,
  with its target.
  """
  documents = run.corpus.documents[split]
  bundle = bundle_lib.Bundle(run.config, run.corpus.tokenizer, run.params)
  model = forecast_lib.Forecaster(bundle)
  count = min(len(documents), limit or len(documents))
  rows = []
  with activity.doing('forecasting', count, 'series') as done:
    for first in range(0, count, TOGETHER):
      part = range(first, min(first + TOGETHER, count))
      names = [documents.name(n) for n in part]
      given = [series_lib.content(documents.read(n)) for n in part]
      rows += _together(model, names, given)
      done(len(part))
  return rows


def _together(model, names, held_out):
  """Returns the rows of series that are read together, each one's in order."""
  seen = [_seen(given, model.horizon) for given in held_out]
  streams = {
    n: model.empty(_history(name, held_out[n], seen[n][0], model.horizon))
    for n, name in enumerate(names)
    if seen[n]
  }
  rows: dict[int, list[dict[str, Any]]] = {n: [] for n in streams}
  for origin in range(max(map(len, seen))):
    own = [n for n in streams if origin < len(seen[n])]
    parts = [
      held_out[n].values_NxT[streams[n].count : seen[n][origin]] for n in own
    ]
    read = model.read_all([streams[n] for n in own], parts)
    for n, stream in zip(own, read, strict=True):
      streams[n] = stream
      rows[n] += _rows(model, stream, held_out[n].values_NxT)
  return [row for each in rows.values() for row in each]


def _seen(given, horizon):
  """Returns how many readings come before each horizon that is forecast."""
  counts = [origin + 1 for origin in examples.origins(given, horizon)]
  return [n for n in counts if not np.isnan(given.values_NxT[:n]).all()]


def _history(name, given, count, horizon):
  """Returns a series up to its first origin, and its covariates to the end."""
  # What isn't known of the last readings to forecast is missing.
  beyond = (0, horizon), (0, 0)
  covariates_MxC = np.pad(given.covariates_MxC, beyond, constant_values=np.nan)
  return given.series(name)._replace(
    values_NxT=given.values_NxT[:count], covariates_MxC=covariates_MxC
  )


def _rows(model, stream, values_NxT):
  """Returns the forecast of each target beside the readings that followed."""
  whole, seen, rows = model.forecast(stream), stream.count, []
  after_HxT = np.full((model.horizon, values_NxT.shape[1]), np.nan)
  after_HxT[: len(values_NxT) - seen] = values_NxT[seen : seen + model.horizon]
  names = [*dict.fromkeys(whole.targets)] or ['']
  for name, after_H in zip(names, after_HxT.T, strict=True):
    forecast = whole.of(name) if name else whole
    rows.append(
      {
        'name': stream.name,
        **({'target': name} if name else {}),
        'origin': seen,
        'readings': [None if np.isnan(x) else float(x) for x in after_H],
        'point': forecast.point_H.tolist(),
        'quantiles': {
          f'{level:g}': column.tolist()
          for level, column in zip(
            forecast.levels, forecast.quantiles_HxQ.T, strict=True
          )
        },
      }
    )
  return rows


def score_run(
  run: evaluate.Run, predictions: Sequence[dict[str, Any]], scorer: None
) -> dict[str, Any]:
  """Returns the scores of a run's predictions; there is no `scorer`.

  Key 'forecasters' has a row for the model and for each baseline, the others
  are those of the model: of several targets, means over these.
  """
  del scorer
  histories = _histories(run, predictions)
  y_NxL = np.array([row['readings'] for row in predictions], np.float64)
  quantiles = [[*row['quantiles'].values()] for row in predictions]
  made = forecasts_lib.Forecasts(
    np.array([row['point'] for row in predictions]),
    np.array(quantiles).swapaxes(1, 2),
  )
  levels = tuple(map(float, predictions[0]['quantiles']))
  targets = [row['target'] for row in predictions if 'target' in row]
  rows = comparison.compare(
    {NAME: made}, y_NxL, histories, run.config.data.season, levels, targets
  )
  own = next(row for row in rows if row['name'] == NAME)
  return {name: own[name] for name in SHOWN if own.get(name) is not None} | {
    'forecasters': rows,
    'intervals': own['intervals'],
  }


def _histories(run, predictions):
  """Returns the readings before each prediction, of whatever split it is."""
  found: dict[str, np.ndarray] = {}
  for documents in run.corpus.documents.values():
    for n in range(len(documents)):
      values_NxT = series_lib.content(documents.read(n)).values_NxT
      if len(values_NxT) > len(found.get(documents.name(n), ())):
        found[documents.name(n)] = values_NxT
  places = {name: n for n, name in enumerate(run.config.data.targets)}
  return [
    found[row['name']][: row['origin'], places.get(row.get('target'), 0)]
    for row in predictions
  ]


def draw_scores(row: Mapping[str, Any], path: pathlib.Path) -> None:
  """Draws the MASE and the OWA of each forecaster, with 95 % intervals."""
  rows = row['forecasters']
  scores = [x for x in ('mase', 'owa') if all(r.get(x) for r in rows)]
  figure, axes = plots.panels(
    (3.6 * max(len(scores), 1), 3.6), 1, len(scores) or 1
  )
  for own, score in zip(axes[0], scores, strict=False):
    heights = np.array([each[score] for each in rows])
    edges = np.array([each['intervals'][score] for each in rows])
    whiskers = np.maximum([heights - edges[:, 0], edges[:, 1] - heights], 0)
    colors = [plots.BLUE if x['name'] == NAME else '#bbbbbb' for x in rows]
    names = [each['name'] for each in rows]
    own.bar(names, heights, 0.6, color=colors)
    own.errorbar(
      range(len(rows)), heights, whiskers, fmt='none', capsize=4, ecolor='k'
    )
    own.tick_params('x', rotation=30)
    own.set_ylabel(score.upper())
    plots.dress(own, 'y')
  figure.suptitle(f'{row["split"]}, step {row["step"]}')
  plots.save(figure, path)
