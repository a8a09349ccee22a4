"""A forecaster beside the baselines, each score with its bootstrap interval.

Scores are means over series, but the weighted quantile loss, which is a ratio
of sums. Intervals are of 95 %, over series drawn with replacement: the readings
of one depend on each other. MSIS and coverage are of the widest interval among
the quantiles, from level a to 1 - a.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import typing as npt

from rnn_jax import errors
from rnn_jax import tables
from rnn_jax.evaluation import intervals
from rnn_jax.evaluation.forecasting import baselines
from rnn_jax.evaluation.forecasting import forecasts as forecasts_lib
from rnn_jax.evaluation.forecasting import metrics

COLUMNS = (
  'forecaster=name',
  'sMAPE=smape:.3f',
  'MASE=mase:.3f',
  'RMSSE=rmsse:.3f',
  'OWA=owa:.3f',
  'wQL=wql:.4f',
  'MSIS=msis:.3f',
  'coverage=coverage:.3f',
)
JUDGE = 'seasonal naive'


def baseline(
  name: str,
  histories: Sequence[np.ndarray],
  horizon: int,
  season: int,
  levels_Q: npt.ArrayLike,
) -> forecasts_lib.Forecasts:
  """Returns the forecasts of one of baselines.BASELINES."""
  each = [baselines.BASELINES[name](x, horizon, season) for x in histories]
  return forecasts_lib.Forecasts(
    np.stack([one.mean_L for one in each]),
    np.stack([one.quantiles(levels_Q) for one in each]),
  )


def compare(
  forecasters: Mapping[str, forecasts_lib.Forecasts],
  y_NxL: np.ndarray,
  histories: Sequence[np.ndarray],
  season: int,
  levels_Q: npt.ArrayLike,
  groups: Sequence[str] = (),
) -> list[dict[str, Any]]:
  """Returns a row of scores for each forecaster, then for each baseline.

  Args:
    forecasters: by name, such as the model.
    y_NxL: the readings that were forecast; NaN is missing.
    histories: the readings before them, one array per series. Series of
      several targets come one target after another.
    season: how many steps a season has; 1 is none.
    levels_Q: the levels of the quantiles, in ascending order.
    groups: of each series, such as its target; empty: there are none.

  Returns:
    Dicts with a name, scores, 'intervals' ({score: [low, high]}) and 'behind':
    the mean MASE minus that of seasonal naive over the same series and its
    interval, [difference, low, high]. A score that has no meaning is None: MASE
    of constant histories only, MSIS without an interval among the levels. With
    groups 'groups' has the scores of each, without intervals.

  Raises:
    InputError: shapes disagree, levels aren't in order, or a forecast is
      missing.
  """
  y_NxL = np.asarray(y_NxL, np.float64)
  levels_Q = np.asarray(levels_Q, np.float64)
  if y_NxL.ndim != 2 or len(histories) != len(y_NxL):
    errors.refuse(
      'y_NxL.shape', y_NxL.shape, f'give a row for each of {len(histories)}'
    )
  if levels_Q.ndim != 1 or np.any(np.diff(levels_Q) <= 0):
    errors.refuse('levels_Q', levels_Q, 'give levels in ascending order')
  known = {
    name: baseline(name, histories, y_NxL.shape[1], season, levels_Q)
    for name in baselines.BASELINES
  }
  scales = (
    metrics.absolute_scale(histories, season),
    metrics.squared_scale(histories, season),
  )
  columns = {
    name: _columns(each, y_NxL, scales, levels_Q)
    for name, each in {**forecasters, **known}.items()
  }
  rows = [_row(name, columns) for name in columns]
  for group in dict.fromkeys(groups):
    chosen = np.array(groups) == group
    own = {
      name: {score: x[chosen] for score, x in each.items()}
      for name, each in columns.items()
    }
    for row in rows:
      of_groups = row.setdefault('groups', {})
      of_groups[group] = _scores(row['name'], own)
  return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """Returns the table of `compare`'s rows, and who loses to seasonal naive.

  A table of each group follows.
  """
  lines = [*tables.of(rows, COLUMNS), *filter(None, map(warning, rows))]
  for group in rows[0].get('groups', ()):
    own = [row['groups'][group] for row in rows]
    lines += [group, *tables.of(own, COLUMNS)]
  return '\n'.join(lines)


def warning(row: Mapping[str, Any]) -> str:
  """Returns a line if seasonal naive has the lower MASE; '': it hasn't."""
  if row['name'] in baselines.BASELINES or row['behind'] is None:
    return ''
  difference, low, high = row['behind']
  if difference <= 0:
    return ''
  sure = 'better' if low > 0 else 'better, within chance,'
  return (
    f'{JUDGE} is {sure} than {row["name"]}: its MASE is {difference:.3f} '
    f'lower, with 95 % between {low:.3f} and {high:.3f}'
  )


def _columns(forecast, y_NxL, scales, levels_Q):
  """Returns what the scores are means or ratios of, an entry per series."""
  absolute_N, squared_N = scales
  point_NxL, quantiles_NxLxQ = forecast.point_NxL, forecast.quantiles_NxLxQ
  losses_NxQ = metrics.quantile_loss(y_NxL, quantiles_NxLxQ, levels_Q)
  columns = {
    'smape': metrics.smape(y_NxL, point_NxL),
    'mase': metrics.mase(y_NxL, point_NxL, absolute_N),
    'rmsse': metrics.rmsse(y_NxL, point_NxL, squared_N),
    'losses': losses_NxQ.mean(1),
    'sizes': metrics.sizes(y_NxL),
  }
  cover = levels_Q[-1] - levels_Q[0]
  if len(levels_Q) > 1 and np.isclose(levels_Q[0] + levels_Q[-1], 1):
    edges = quantiles_NxLxQ[..., 0], quantiles_NxLxQ[..., -1]
    columns['msis'] = metrics.msis(y_NxL, *edges, absolute_N, cover)
    columns['coverage'] = metrics.coverage(y_NxL, *edges)
  # What can't be scored is NaN in all forecasters alike.
  for name, score_N in columns.items():
    scale_N = absolute_N if name in ('mase', 'rmsse', 'msis') else None
    metrics.mean(score_N, y_NxL, scale_N)  # refuses a missing forecast
  return columns


def _statistics(name, columns):
  """Yields (score, statistic, what it is of) of one forecaster."""
  own, naive2 = columns[name], columns['Naive2']
  for score in ('smape', 'mase', 'rmsse', 'msis', 'coverage'):
    if score in own:
      yield score, _mean, (own[score],)
  both = own['smape'], own['mase'], naive2['smape'], naive2['mase']
  yield 'owa', _owa, both
  yield 'wql', _ratio, (own['losses'], own['sizes'])


def _scores(name, columns):
  """Returns the scores of one forecaster."""
  row: dict[str, Any] = {'name': name, 'msis': None, 'coverage': None}
  for score, statistic, given in _statistics(name, columns):
    value = float(statistic(*given))
    row[score] = None if np.isnan(value) else value
  return row


def _row(name, columns):
  """Returns the scores of one forecaster, with intervals."""
  row = _scores(name, columns)
  row['intervals'] = {
    score: intervals.percentile(statistic, *given)
    for score, statistic, given in _statistics(name, columns)
    if row[score] is not None
  }
  behind_N = columns[name]['mase'] - columns[JUDGE]['mase']
  value = _mean(behind_N)
  row['behind'] = (
    None if np.isnan(value) else [value, *intervals.percentile(_mean, behind_N)]
  )
  return row


def _mean(score_N):
  score_N = score_N[~np.isnan(score_N)]
  return float(np.mean(score_N)) if len(score_N) else float('nan')


def _owa(smape_N, mase_N, naive2_smape_N, naive2_mase_N):
  naive2 = _mean(naive2_smape_N), _mean(naive2_mase_N)
  return metrics.owa(_mean(smape_N), _mean(mase_N), naive2)


def _ratio(losses_N, sizes_N):
  total = np.sum(sizes_N)
  return np.sum(losses_N) / total if total else float('nan')
