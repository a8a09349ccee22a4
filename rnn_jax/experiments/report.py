"""Writes the comparison: report.md, report.json and figures.

report.md has a sentence and a column for each metric, then costs, ratios, a
ranking, figures, failed runs, what each variant changes, and versions. With
axes it has a table of lines and columns for each metric.
"""

import os
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from rnn_jax import errors
from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import differences
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan
from rnn_jax.experiments import plots
from rnn_jax.experiments import records
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import verdicts
from rnn_jax.profiling import report as tables
from rnn_jax.system import files

KIB, MIB = 2**10, 2**20
TINY = 5e-5  # 0.0000 with four digits
EXACT = 'parameters', 'state_bytes'  # the same for every seed


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
    *results(summary),
    _ratios_section(summary),
    _section('Ranking', verdicts.ranking(summary)),
    *(f'![{caption}]({file})' for file, caption in figures),
    _section('Failed runs', _failures(summary)),
    _section('Missing scores', _missing(summary)),
    _section('Variants', _overrides(summary)),
    provenance(summary),
  ]
  return '\n\n'.join(filter(None, parts)) + '\n'


def sentences(summary: dict[str, Any]) -> list[str]:
  """Returns who is best in scores, memory and time, and the failures."""
  return [*_scores(summary), *verdicts.ranking(summary), *_failures(summary)]


def _scores(summary):
  """Returns who leads in each metric, and if by more than seeds differ."""
  labels = {m['key']: m for m in summary['metrics']}
  return [
    _sentence(leader, labels[leader['metric']]) for leader in summary['leaders']
  ]


def results(summary: dict[str, Any]) -> list[str]:
  """Returns the tables of scores and costs."""
  axes = axes_lib.Axes(**summary['axes'])
  if axes == axes_lib.Axes(axes.lines):
    return [results_table(summary)]
  tables_of = _table_of_columns if axes.columns else _table_of_choices
  return [tables_of(axes, metric, summary) for metric in summary['metrics']]


def _table_of_columns(axes, metric, summary):
  """A metric: a line's best variant in each column."""
  variants = summary['variants']
  cells = axes_lib.cells(axes, metric, variants)
  leading = _leading(metric, cells, variants)

  def text(column, line):
    if line not in cells[column]:
      return '-'
    found = cells[column][line]
    shown = cell(metric['key'], variants[found.variant])
    if found.variant in leading:
      shown = f'**{shown}**'
    return shown + (f' ({found.best} of {found.tried})' if axes.best else '')

  lines = [
    [line, *sizes, *(text(column, line) for column in cells)]
    for line, sizes in _sized(axes, summary)
    if any(line in of_column for of_column in cells.values())
  ]
  title = f'{metric["label"]}{_arrow(metric["better"])}'
  if axes.best:
    title += f', at the best {axes.best}, of how many'
  return f'{title}:\n\n{_table([*_heads(axes, summary), *cells], lines)}'


def _table_of_choices(axes, metric, summary):
  """A metric: a line's variants, the best of them bold."""
  variants = summary['variants']
  (cells,) = axes_lib.cells(axes, metric, variants).values()
  choices = list(dict.fromkeys(axes.place(name).best for name in variants))
  lines = []
  for line, sizes in _sized(axes, summary):
    names = [f'{line}{axes_lib.SEPARATOR}{choice}' for choice in choices]
    shown = [
      cell(metric['key'], variants[name]) if name in variants else '-'
      for name in names
    ]
    if line in cells:
      best = names.index(cells[line].variant)
      shown[best] = f'**{shown[best]}**'
      lines.append([line, *sizes, *shown])
  title = f'{metric["label"]}{_arrow(metric["better"])}, for each {axes.best}:'
  return f'{title}\n\n{_table([*_heads(axes, summary), *choices], lines)}'


def _leading(metric, cells, variants):
  """The best variants of all columns."""
  return [
    name
    for of_column in cells.values()
    for name in best(
      metric, {x.variant: variants[x.variant] for x in of_column.values()}
    )
  ]


def _of_model(summary):
  """The costs that are a line's, not a variant's."""
  return [cost for cost in summary['costs'] if cost['key'] in EXACT]


def _heads(axes, summary):
  return [axes.lines, *(cost['label'] for cost in _of_model(summary))]


def _sized(axes, summary):
  """Yields (line, its costs of the model) of each line's first variant."""
  first = {}
  for name, variant in summary['variants'].items():
    if variant['done']:
      first.setdefault(axes.place(name).lines, variant)
  for line, variant in first.items():
    yield line, [cell(cost['key'], variant) for cost in _of_model(summary)]


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


def _sentence(leader, metric):
  order, key = leader['order'], metric['key']
  column = leader['column'] and f', {leader["column"]}'
  start = f'{metric["label"]}{column} ({metric["better"]} is better): '
  if not order:
    return f'{start}no variant has a score.'
  means = {name: shown(key, leader['means'][name]) for name in order}
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
  if figure['deviation'] is not None and key not in EXACT:
    text += f' ± {shown(key, figure["deviation"], figure["mean"])}'
  return text


def shown(key: str, value: float | None, beside: float | None = None) -> str:
  """Formats a number, with as many digits as the one `beside` it."""
  if value is None:
    return '-'
  if key in ('tokens_per_second', 'parameters', 'largest_batch'):
    return f'{value:,.0f}'
  scale = MIB if key.endswith('_bytes') else 1
  scale = KIB if key == 'state_bytes' else scale
  size = abs((value if beside is None else beside) / scale)
  if key == 'ratio':
    return f'{value:.2f}'
  if 0 < size < TINY:
    return f'{value:.1e}'
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
    f'{", ".join(plan.name_of(*run) for run in m["runs"])}: no finite '
    f'{m["metric"]!r}; the scores are {", ".join(m["scores"])}'
    for m in summary['missing']
  ]


def _overrides(summary):
  """What each variant changes; first what all do."""
  changes = {
    name: {f'`{key}={value!r}`' for key, value in variant['overrides'].items()}
    for name, variant in summary['variants'].items()
    if variant['done'] + variant['failed']
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
  if len(summary['machines']) > 1:
    machines += ', whose times are not compared'
  return f'Run on {machines}, with {versions}; commit {commits}.'


def _section(title, lines):
  return f'## {title}\n\n{_listed(lines)}' if lines else ''


def _listed(lines):
  return '\n'.join(f'* {line}' for line in lines)
