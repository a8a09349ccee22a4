"""Summarizes rows of runs: means over seeds, leaders, ratios.

The deviation is that of a sample, sqrt(sum (x - mean)^2 / (n - 1)), and None
for a single seed. A score that is missing or not finite is left out, and so are
times if those that there are come from several machines.
"""

import math
import statistics
from typing import Any

from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import costs as costs_lib
from rnn_jax.experiments import differences
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import records

ALWAYS = 'done', 'failed'  # counts that a variant has, even of no run
UNNAMED = 'an unknown machine'


def summarize(grid: grid_lib.Grid, rows: records.Rows) -> dict[str, Any]:
  """Returns all that a report says, ready for JSON.

  Args:
    grid: what is compared; runs of other variants are left out.
    rows: from records.read.

  Returns:
    {"title", "split", "baseline", "metrics", "costs", "axes", "variants":
    {name: {"done", "failed" and, if any run is, "diverged", "eliminated",
    "overrides", "figures": {key: {"mean", "deviation", "values"}}, "ratios":
    {key: to the baseline's mean}}}, "leaders" (of each metric in each column),
    "failures" (the runs that aren't done), "missing", "published", "machines"
    and, of several, those that are "timed", "versions", "commits"}.
  """
  rows = {k: row for k, row in sorted(rows.items()) if k[0] in grid.variants}
  machines = _distinct(map(_machine, rows.values()))
  timed = _distinct(
    _machine(row) for row in rows.values() if costs_lib.has_times(row)
  )
  costs = costs_lib.present(rows.values(), len(timed) == 1)
  keys = [cost.key for cost in costs]
  variants = {
    name: _variant(grid, keys, [r for (v, _), r in rows.items() if v == name])
    for name in grid.variants
  }
  _add_ratios(variants, grid.baseline)
  return {
    'title': grid.title,
    'split': grid.split,
    'baseline': grid.baseline,
    'metrics': [metric._asdict() for metric in grid.compared],
    'costs': [cost._asdict() for cost in costs],
    'axes': grid.axes._asdict(),
    'variants': variants,
    'leaders': [
      {'metric': metric.key, 'column': column} | _leader(metric, of_column)
      for metric in grid.compared
      for column, of_column in _columns(grid.axes, metric, variants).items()
    ],
    'failures': [
      {
        'variant': variant,
        'seed': seed,
        'status': row['status'],
        'error': row['error'],
      }
      for (variant, seed), row in rows.items()
      if row['status'] != 'done'
    ],
    'missing': _missing(grid, rows),
    'published': grid.notes,
    'machines': machines,
    **({'timed': timed} if len(machines) > 1 else {}),
    'versions': _distinct(row['versions'] for row in rows.values()),
    'commits': _distinct(row['commit'] for row in rows.values()),
  }


def ended(variant: dict[str, Any]) -> int:
  """Returns how many runs of a summary's variant ended, however."""
  return sum(variant.get(status, 0) for status in records.STATUSES)


def _machine(row):
  if 'device' not in row:
    return UNNAMED
  return f'{row["device"]}, {row["cores"]} core{"s" * (row["cores"] != 1)}'


def _variant(grid, costs, rows):
  statuses = [row['status'] for row in rows]
  done = [row for row in rows if row['status'] == 'done']
  figures = {
    metric.key: _figure(
      done, lambda row, key=metric.key: row['scores'].get(key)
    )
    for metric in grid.compared
  }
  for key in costs:
    figures[key] = _figure(done, lambda row, key=key: row.get(key))
  return {
    **{
      status: statuses.count(status)
      for status in records.STATUSES
      if status in ALWAYS or status in statuses
    },
    'overrides': rows[-1]['overrides'] if rows else {},
    'figures': figures,
    'ratios': {},
  }


def _figure(rows, value_of):
  values = {row['seed']: value_of(row) for row in rows}
  values = {seed: value for seed, value in values.items() if _finite(value)}
  numbers = list(values.values())
  return {
    'mean': statistics.fmean(numbers) if numbers else None,
    'deviation': statistics.stdev(numbers) if len(numbers) > 1 else None,
    'values': values,
  }


def _finite(value):
  number = isinstance(value, (int, float)) and not isinstance(value, bool)
  return number and math.isfinite(value)


def _add_ratios(variants, baseline):
  if not baseline:
    return
  base = variants[baseline]['figures']
  for variant in variants.values():
    for key, figure in variant['figures'].items():
      if figure['mean'] is not None and base[key]['mean']:
        variant['ratios'][key] = figure['mean'] / base[key]['mean']


def _columns(axes, metric, variants):
  """Returns {column: {line: its best variant}}."""
  columns = axes_lib.cells(axes, metric._asdict(), variants)
  return {
    column: {line: variants[cell.variant] for line, cell in of_column.items()}
    for column, of_column in columns.items()
  }


def _leader(metric, variants):
  """Returns the order in a metric, its means, and how far two are apart.

  `level` has the variants that the first one doesn't differ from, itself
  included. `difference` and `spread` are those of the first two; `exceeds` is
  whether they differ, None if the spread is unknown.
  """
  key = metric.key
  figures = differences.with_means(key, variants)
  order = sorted(
    figures,
    key=lambda name: figures[name]['mean'],
    reverse=metric.better == 'higher',
  )
  leader = {'order': order, 'means': {n: figures[n]['mean'] for n in order}}
  if len(order) > 1:
    first, second = (figures[name] for name in order[:2])
    difference = differences.between(first, second)
    seen = differences.seen(key, first, second)
    leader |= {
      'level': differences.level(key, order[0], figures),
      'difference': abs(difference.mean),
      'spread': difference.spread,
      'exceeds': None if difference.spread is None else seen,
    }
  return leader


def _missing(grid, rows):
  """Returns the scores that finished runs lack, with those that they have."""
  lacking = {}
  for (variant, seed), row in rows.items():
    for metric in grid.compared:
      if row['status'] == 'done' and not _finite(row['scores'].get(metric.key)):
        found = lacking.setdefault((metric.key, *row['scores']), [])
        found.append([variant, seed])
  return [
    {'metric': metric, 'scores': scores, 'runs': runs}
    for (metric, *scores), runs in lacking.items()
  ]


def _distinct(values):
  distinct = []
  for value in values:
    if value is not None and value not in distinct:
      distinct.append(value)
  return distinct
