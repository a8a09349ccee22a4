"""Writes the comparison: report.md, report.json and figures.

report.md has a sentence and a column for each metric, then costs, ratios, a
ranking, figures, failed runs, what each variant changes, and versions.
"""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from rnn_jax import errors
from rnn_jax import files
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plots
from rnn_jax.experiments import records
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import verdicts

MIB = 2**20


def write(
  grid: grid_lib.Grid, rows: records.Rows, workdir: str | os.PathLike
) -> str:
  """Writes the report of some rows into a work folder.

  Returns:
    Its sentences and its path, to print.

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
  lines = [
    *sentences(summary),
    *verdicts.ranking(summary),
    *_failures(summary),
    f'{folder}/report.md',
  ]
  return '\n'.join(lines)


def page(
  summary: dict[str, Any], figures: Iterable[tuple[str, str]] = ()
) -> str:
  """Returns the Markdown of a summary; `figures` are (file, caption)."""
  parts = [
    f'# {summary["title"]}',
    _listed(sentences(summary)),
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
  """Returns who leads in each metric, and if by more than seeds differ."""
  labels = {m['key']: m for m in summary['metrics']}
  return [
    _sentence(leader, labels[leader['metric']], summary['variants'])
    for leader in summary['leaders']
  ]


def results_table(summary: dict[str, Any]) -> str:
  """Returns the table of means; the best of each column is bold."""
  columns = [*summary['metrics'], *summary['costs']]
  best = {c['key']: _best(c, summary['variants']) for c in columns}
  lines = []
  for name, variant in summary['variants'].items():
    runs = str(variant['done'])
    if variant['failed']:
      runs += f', {variant["failed"]} failed'
    lines.append(
      [name, runs] + [_cell(c['key'], variant, best[c['key']]) for c in columns]
    )
  for label, values in summary['published'].items():
    cells = [_shown(c['key'], values.get(c['key'])) for c in columns]
    lines.append([f'{label} (published)', '', *cells])
  heads = [f'{c["label"]}{_arrow(c["better"])}' for c in columns]
  return _table(['variant', 'runs', *heads], lines)


def _ratios_section(summary):
  """Returns the means divided by the baseline's, or ''."""
  columns = [*summary['metrics'], *summary['costs']]
  lines = [
    [name] + [_shown('ratio', variant['ratios'].get(c['key'])) for c in columns]
    for name, variant in summary['variants'].items()
    if name != summary['baseline'] and variant['ratios']
  ]
  if not lines:
    return ''
  heads = [c['label'] for c in columns]
  title = f'Divided by the means of `{summary["baseline"]}`:'
  return f'{title}\n\n{_table(["variant", *heads], lines)}'


def _sentence(leader, metric, variants):
  order = leader['order']
  start = f'{metric["label"]} ({metric["better"]} is better): '
  if not order:
    return f'{start}no variant has a score.'
  first = _shown(metric['key'], _mean(variants[order[0]], metric['key']))
  if len(order) == 1:
    return f'{start}only {order[0]} has a score, {first}.'
  second = _shown(metric['key'], _mean(variants[order[1]], metric['key']))
  if not leader['difference']:
    return f'{start}{order[0]} and {order[1]} are level at {first}.'
  start += f'{order[0]} leads with {first}, before {order[1]} with {second}; '
  difference = f'{leader["difference"]:.2g}'
  if leader['spread'] is None:
    return (
      f'{start}the difference, {difference}, rests on one seed: the spread of '
      'seeds is unknown.'
    )
  exceeds = 'exceeds' if leader['exceeds'] else 'does not exceed'
  return (
    f'{start}the difference, {difference}, {exceeds} the spread of seeds, '
    f'{leader["spread"]:.2g}.'
  )


def _mean(variant, key):
  return variant['figures'][key]['mean']


def _best(column, variants):
  """Returns the best mean of a column; None if all are equally good."""
  means = [_mean(variant, column['key']) for variant in variants.values()]
  means = [mean for mean in means if mean is not None]
  if len(set(means)) < 2 or not column['better']:
    return None
  return max(means) if column['better'] == 'higher' else min(means)


def _cell(key, variant, best):
  figure = variant['figures'][key]
  text = _shown(key, figure['mean'])
  if figure['deviation'] is not None and key != 'parameters':
    text += f' ± {_shown(key, figure["deviation"], figure["mean"])}'
  is_best = best is not None and figure['mean'] == best
  return f'**{text}**' if is_best else text


def _shown(key, value, beside=None):
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
  rule = ['---', *['---:'] * (len(head) - 1)]
  rows = [f'| {" | ".join(cells)} |' for cells in (head, rule, *lines)]
  return '\n'.join(rows)


def _failures(summary):
  return [
    f'{f["variant"]}/seed{f["seed"]} failed: {f["error"]}'
    for f in summary['failures']
  ]


def _missing(summary):
  return [
    f'{m["variant"]}/seed{m["seed"]} has no finite {m["metric"]!r}; its '
    f'scores are {", ".join(m["scores"])}'
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
  return f'Run on {machines}, with {versions}; commit {commits}.'


def _section(title, lines):
  return f'## {title}\n\n{_listed(lines)}' if lines else ''


def _listed(lines):
  return '\n'.join(f'* {line}' for line in lines)
