"""A forecaster beside the baselines: scores, intervals, the warning."""

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.evaluation.forecasting import comparison
from rnn_jax.evaluation.forecasting import forecasts
from rnn_jax.evaluation.forecasting import metrics

LEVELS = (0.1, 0.5, 0.9)
SEASON = 4


def data(count=60):
  """Returns (histories, y_NxL): seasons of different heights, and noise."""
  rng = np.random.default_rng(0)
  index = np.array([2.0, 1.0, 0.5, 0.5])[np.arange(40) % SEASON]
  height = rng.uniform(5, 50, (count, 1))
  x = height * (index + rng.normal(0, 0.1, (count, 40)))
  return [*x[:, :32]], x[:, 32:]


def around(point_NxL, width):
  """Returns Forecasts with quantiles at -width, 0 and width."""
  edges = np.array([-width, 0, width])
  return forecasts.Forecasts(point_NxL, point_NxL[..., None] + edges)


def test_rows_have_the_scores_and_intervals():
  histories, y = data()
  y[0, 3] = y[1] = np.nan  # a gap, and a series without readings
  model = around(np.where(np.isnan(y), 0, y) + 1, 2.0)
  rows = comparison.compare({'model': model}, y, histories, SEASON, LEVELS)
  names = 'model', 'naive', 'seasonal naive', 'Naive2'
  assert tuple(row['name'] for row in rows) == names
  row, _, seasonal_naive, naive2 = rows
  scale = metrics.absolute_scale(histories, SEASON)
  seen = np.arange(60) != 1
  assert row['mase'] == pytest.approx(np.mean(1 / scale[seen]))
  assert row['coverage'] == 1
  assert row['msis'] == pytest.approx(np.mean(4 / scale[seen]))
  ratios = row['smape'] / naive2['smape'], row['mase'] / naive2['mase']
  assert row['owa'] == pytest.approx(np.mean(ratios))
  # Off by 1 at the median and by 1 and 3 at the edges, where 0.2 counts.
  losses = np.sum(~np.isnan(y)) * (1 + 0.2 * 3 + 0.2 * 1) / 3
  assert row['wql'] == pytest.approx(losses / np.nansum(y))
  assert naive2['owa'] == 1 and naive2['intervals']['owa'] == [1, 1]
  for score, (low, high) in row['intervals'].items():
    assert low <= row[score] <= high
  spread = np.std(1 / scale[seen]) / np.sqrt(59)
  low, high = row['intervals']['mase']
  assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.2)
  difference = row['mase'] - seasonal_naive['mase']
  assert row['behind'][0] == pytest.approx(difference)
  assert '| model ' in comparison.table(rows)


def test_a_forecaster_that_seasonal_naive_beats_is_named():
  histories, y = data()
  flat = around(np.full_like(y, y.mean()), 1.0)
  rows = comparison.compare(
    {'flat': flat, 'exact': around(y, 1.0)}, y, histories, SEASON, LEVELS
  )
  lines = comparison.table(rows).splitlines()
  warnings = [line for line in lines if 'is better' in line]
  assert len(warnings) == 1
  assert warnings[0].startswith('seasonal naive is better than flat')
  little = {**rows[0], 'behind': [0.1, -0.1, 0.3]}
  assert 'within chance' in comparison.warning(little)
  assert not comparison.warning(rows[2])  # naive itself


def test_scores_without_a_meaning_are_none():
  histories, y = [np.ones(20)] * 2, np.ones((2, 3))
  model = forecasts.Forecasts(y + 1, (y + 1)[..., None])
  rows = comparison.compare({'model': model}, y, histories, SEASON, [0.5])
  missing = {name for name, value in rows[0].items() if value is None}
  assert missing == {'mase', 'rmsse', 'owa', 'msis', 'coverage', 'behind'}
  assert rows[0]['smape'] == pytest.approx(200 / 3)
  assert ' - ' in comparison.table(rows)


def test_a_missing_forecast_and_other_series_are_errors():
  histories, y = data(3)
  model = around(y.copy(), 1.0)
  model.point_NxL[0, 0] = np.nan
  with pytest.raises(errors.InputError, match='every step of 1 series'):
    comparison.compare({'model': model}, y, histories, SEASON, LEVELS)
  with pytest.raises(errors.InputError, match=r'y_NxL.shape=\(2, 8\)'):
    comparison.compare({}, y[:2], histories, SEASON, LEVELS)
  with pytest.raises(errors.InputError, match='ascending order'):
    comparison.compare({}, y, histories, SEASON, (0.9, 0.1))
