"""Writes the comparison: report.md, report.json and figures.

report.md has a sentence and a column for each metric, then costs, ratios, a
ranking, figures, failed runs, what each variant changes, and versions. With
axes it has a table of lines and columns for each metric.
"""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from rnn_jax import errors
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan
from rnn_jax.experiments import plots
from rnn_jax.experiments import records
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import tables
from rnn_jax.experiments import verdicts
from rnn_jax.system import files


def write(
  grid: grid_lib.Grid, rows: records.Rows, workdir: str | os.PathLike
) -> dict[str, Any]:
  """Writes the report of some rows into a work folder.

  Returns:
    A summary, as summary.summarize, which `sentences` and `page` describe.

  Raises:
    InputError: no row is of this grid.
  """
  summary = summary_lib.summarize(grid, rows)
  if not any(map(summary_lib.ended, summary['variants'].values())):
    raise errors.InputError(
      f'workdir={str(workdir)!r}: no run of this grid has ended there: run it '
      'first, without --report'
    )
  figures = plots.draw(grid, summary, rows, workdir)
  folder = pathlib.Path(workdir)
  files.write_whole(
    folder / 'report.json', files.to_json(summary, indent=2) + '\n'
  )
  files.write_whole(folder / 'report.md', page(summary, figures))
  return summary


def page(
  summary: dict[str, Any], figures: Iterable[tuple[str, str]] = ()
) -> str:
  """Returns the Markdown of a summary; `figures` are (file, caption)."""
  parts = [
    f'# {summary["title"]}',
    _listed(_scores(summary)),
    f'Means over seeds on the {summary["split"]} split, ± their standard '
    'deviation.',
    *tables.results(summary),
    tables.ratios(summary),
    _section('Ranking', verdicts.ranking(summary)),
    *(f'![{caption}]({file})' for file, caption in figures),
    _section('Failed runs', _ended_early(summary, 'failed')),
    _section('Diverged runs', _ended_early(summary, 'diverged')),
    _section('Eliminated runs', _ended_early(summary, 'eliminated')),
    _section('Missing scores', _missing(summary)),
    _section('Variants', _overrides(summary)),
    provenance(summary),
  ]
  return '\n\n'.join(filter(None, parts)) + '\n'


def sentences(summary: dict[str, Any]) -> list[str]:
  """Returns who is best in scores, memory and time, and the failures."""
  return [
    *_scores(summary),
    *verdicts.ranking(summary),
    *_ended_early(summary, 'failed', 'diverged'),
  ]


def _scores(summary):
  """Returns who leads in each metric, and if by more than seeds differ."""
  labels = {m['key']: m for m in summary['metrics']}
  return [
    _sentence(leader, labels[leader['metric']]) for leader in summary['leaders']
  ]


def _sentence(leader, metric):
  order, key = leader['order'], metric['key']
  column = leader['column'] and f', {leader["column"]}'
  start = f'{metric["label"]}{column} ({metric["better"]} is better): '
  if not order:
    return f'{start}no variant has a score.'
  means = {name: tables.shown(key, leader['means'][name]) for name in order}
  if len(order) == 1:
    return f'{start}only {order[0]} has a score, {means[order[0]]}.'
  spread = leader['spread']
  if len(leader['level']) > 1:
    listed = ', '.join(f'{n} {means[n]}' for n in order if n in leader['level'])
    known = 'unknown, one seed' if spread is None else f'{spread:.2g}'
    return (
      f'{start}no difference seen between the best: {listed} (spread over '
      f'seeds: {known}).'
    )
  first, second = order[:2]
  start += (
    f'{first} leads with {means[first]}, before {second} with '
    f'{means[second]}; the difference, {leader["difference"]:.2g}, '
  )
  if spread is None:
    return f'{start}rests on one seed: its spread over seeds is unknown.'
  return f'{start}exceeds its spread over seeds, {spread:.2g}.'


def _ended_early(summary, *statuses):
  return [
    f'{plan.name_of(f["variant"], f["seed"])} {f["status"]}: {f["error"]}'
    for f in summary['failures']
    if f['status'] in statuses
  ]


def _missing(summary):
  return [
    f'{", ".join(plan.name_of(*run) for run in m["runs"])}: no finite '
    f'{m["metric"]!r}; the scores are {", ".join(m["scores"])}'
    for m in summary['missing']
  ]


def _overrides(summary):
  """What each variant changes; first what all do."""
  changes = {
    name: {f'`{key}={value!r}`' for key, value in variant['overrides'].items()}
    for name, variant in summary['variants'].items()
    if summary_lib.ended(variant)
  }
  shared = set.intersection(*changes.values()) if len(changes) > 1 else set()
  first = [f'all: {", ".join(sorted(shared))}'] if shared else []
  return first + [
    f'{name}: {", ".join(sorted(own - shared)) or "the config as it is"}'
    for name, own in changes.items()
  ]


def provenance(summary: dict[str, Any]) -> str:
  """Returns where and with what the runs were made, a sentence."""
  versions = ' or '.join(
    ', '.join(f'{name} {number}' for name, number in versions.items())
    for versions in summary['versions']
  )
  commits = ', '.join(summary['commits']) or 'unknown'
  machines = ' and '.join(summary['machines'])
  if timed := summary.get('timed'):
    machines += (
      f', times on {timed[0]}'
      if len(timed) == 1
      else ', whose times are not compared'
    )
  return f'Run on {machines}, with {versions}; commit {commits}.'


def _section(title, lines):
  return f'## {title}\n\n{_listed(lines)}' if lines else ''


def _listed(lines):
  return '\n'.join(f'* {line}' for line in lines)
