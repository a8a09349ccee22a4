"""Writes the comparison: report.md, report.json and figures.

report.md has a sentence and a column for each metric, then costs, ratios, a
ranking, figures, failed runs, what each variant changes, and versions.
"""

import os
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from rnn_jax import errors
from rnn_jax.experiments import differences
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan
from rnn_jax.experiments import plots
from rnn_jax.experiments import records
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import verdicts
from rnn_jax.profiling import report as tables
from rnn_jax.system import files

MIB = 2**20


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
  if not any(v['done'] + v['failed'] for v in summary['variants'].values()):
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
    results_table(summary),
    _ratios_section(summary),
    _section('Ranking', verdicts.ranking(summary)),
    *(f'![{caption}]({file})' for file, caption in figures),
    _section('Failed runs', _failures(summary)),
    _section('Missing scores', _missing(summary)),
    _section('Variants', _overrides(summary)),
    _provenance(summary),
  ]
  return '\n\n'.join(filter(None, parts)) + '\n'


def sentences(summary: dict[str, Any]) -> list[str]:
  """Returns who is best in scores, memory and time, and the failures."""
  return [*_scores(summary), *verdicts.ranking(summary), *_failures(summary)]


def _scores(summary):
  """Returns who leads in each metric, and if by more than seeds differ."""
  labels = {m['key']: m for m in summary['metrics']}
  return [
    _sentence(leader, labels[leader['metric']], summary['variants'])
    for leader in summary['leaders']
  ]


def results_table(summary: dict[str, Any]) -> str:
  """Returns the table of means; the best of each column is bold."""
  columns = [*summary['metrics'], *summary['costs']]
  bold = {c['key']: best(c, summary['variants']) for c in columns}
  lines = []
  for name, variant in summary['variants'].items():
    cells = [
      f'**{cell(key, variant)}**' if name in names else cell(key, variant)
      for key, names in bold.items()
    ]
    lines.append([name, runs(variant), *cells])
  for label, values in summary['published'].items():
    cells = [shown(c['key'], values.get(c['key'])) for c in columns]
    lines.append([f'{label} (published)', '', *cells])
  heads = [f'{c["label"]}{_arrow(c["better"])}' for c in columns]
  return _table(['variant', 'runs', *heads], lines)


def _ratios_section(summary):
  """Returns the means divided by the baseline's, or ''."""
  columns = [*summary['metrics'], *summary['costs']]
  lines = [
    [name] + [shown('ratio', variant['ratios'].get(c['key'])) for c in columns]
    for name, variant in summary['variants'].items()
    if name != summary['baseline'] and variant['ratios']
  ]
  if not lines:
    return ''
  heads = [c['label'] for c in columns]
  title = f'Divided by the means of `{summary["baseline"]}`:'
  return f'{title}\n\n{_table(["variant", *heads], lines)}'


def _sentence(leader, metric, variants):
  order, key = leader['order'], metric['key']
  start = f'{metric["label"]} ({metric["better"]} is better): '
  if not order:
    return f'{start}no variant has a score.'
  means = {name: shown(key, _mean(variants[name], key)) for name in order}
  if len(order) == 1:
    return f'{start}only {order[0]} has a score, {means[order[0]]}.'
  spread = leader['spread']
  if len(leader['level']) > 1:
    listed = ', '.join(f'{n} {means[n]}' for n in order if n in leader['level'])
    known = 'unknown, one seed' if spread is None else f'{spread:.2g}'
    return (
      f'{start}no difference seen between the best: {listed} (spread of '
      f'seeds: {known}).'
    )
  first, second = order[:2]
  start += (
    f'{first} leads with {means[first]}, before {second} with '
    f'{means[second]}; the difference, {leader["difference"]:.2g}, '
  )
  if spread is None:
    return f'{start}rests on one seed: the spread of seeds is unknown.'
  return f'{start}exceeds the spread of seeds, {spread:.2g}.'


def _mean(variant, key):
  return variant['figures'][key]['mean']


def best(column: Mapping[str, str], variants: dict[str, Any]) -> list[str]:
  """Returns the best variants of a column; none if they don't differ.

  Args:
    column: a metric or cost of a summary.
    variants: of a summary.
  """
  figures = differences.with_means(column['key'], variants)
  if len(figures) < 2 or not column['better']:
    return []
  better = max if column['better'] == 'higher' else min
  first = better(figures, key=lambda name: figures[name]['mean'])
  level = differences.level(column['key'], first, figures)
  return [] if len(level) == len(figures) else level


def runs(variant: dict[str, Any]) -> str:
  """Returns how many runs of a variant ended, and how many failed."""
  if variant['failed']:
    return f'{variant["done"]}, {variant["failed"]} failed'
  return str(variant['done'])


def cell(key: str, variant: dict[str, Any]) -> str:
  """Returns a mean with its deviation."""
  figure = variant['figures'][key]
  text = shown(key, figure['mean'])
  if figure['deviation'] is not None and key != 'parameters':
    text += f' ± {shown(key, figure["deviation"], figure["mean"])}'
  return text


def shown(key: str, value: float | None, beside: float | None = None) -> str:
  """Formats a number, with as many digits as the one `beside` it."""
  if value is None:
    return '-'
  if key in ('tokens_per_second', 'parameters', 'largest_batch'):
    return f'{value:,.0f}'
  scale = MIB if key.endswith('_bytes') else 1
  size = abs((value if beside is None else beside) / scale)
  if key == 'ratio':
    return f'{value:.2f}'
  digits = next((d for d, s in ((1, 100), (2, 10), (3, 1)) if size >= s), 4)
  return f'{value / scale:,.{digits}f}'


def _arrow(better):
  return {'higher': ' ↑', 'lower': ' ↓', '': ''}[better]


def _table(head, lines):
  return '\n'.join(tables.table(head, lines))


def _failures(summary):
  return [
    f'{plan.name_of(f["variant"], f["seed"])} failed: {f["error"]}'
    for f in summary['failures']
  ]


def _missing(summary):
  return [
    f'{plan.name_of(m["variant"], m["seed"])} has no finite {m["metric"]!r}; '
    f'its scores are {", ".join(m["scores"])}'
    for m in summary['missing']
  ]


def _overrides(summary):
  return [
    f'{name}: '
    + (
      ', '.join(f'`{k}={v!r}`' for k, v in variant['overrides'].items())
      or 'the config as it is'
    )
    for name, variant in summary['variants'].items()
    if variant['done'] + variant['failed']
  ]


def _provenance(summary):
  versions = ' or '.join(
    ', '.join(f'{name} {number}' for name, number in versions.items())
    for versions in summary['versions']
  )
  commits = ', '.join(summary['commits']) or 'unknown'
  machines = ' and '.join(summary['machines'])
  if len(summary['machines']) > 1:
    machines += ', whose times are not compared'
  return f'Run on {machines}, with {versions}; commit {commits}.'


def _section(title, lines):
  return f'## {title}\n\n{_listed(lines)}' if lines else ''


def _listed(lines):
  return '\n'.join(f'* {line}' for line in lines)
