"""Tables of a comparison: lines and columns, scores, costs and ratios.

With axes each metric has a table. One with columns shows the best of a line's
variants there; else all choices are columns, and the best one is bold.
"""

from collections.abc import Mapping
from typing import Any

from rnn_jax import tables
from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import differences
from rnn_jax.experiments import records

KIB, MIB = 2**10, 2**20
TINY = 5e-5  # 0.0000 with four digits
EXACT = 'parameters', 'state_bytes'  # the same for every seed


def results(summary: dict[str, Any]) -> list[str]:
  """Returns the tables of scores and costs."""
  axes = axes_lib.Axes(**summary['axes'])
  if axes == axes_lib.Axes(axes.lines):
    return [results_table(summary)]
  return [_by_axes(axes, metric, summary) for metric in summary['metrics']]


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


def ratios(summary: dict[str, Any]) -> str:
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


def _by_axes(axes, metric, summary):
  """A metric: lines and columns, or else lines and their choices."""
  variants = summary['variants']
  cells = axes_lib.cells(axes, metric, variants)
  title, choice = f'{metric["label"]}{_arrow(metric["better"])}', ''
  if axes.columns:
    bold = _leading(metric, cells, variants)
    choice = axes.best
  else:
    bold = [cell.variant for of in cells.values() for cell in of.values()]
    axes = axes_lib.Axes(axes.lines, axes.best)
    cells = axes_lib.cells(axes, metric, variants)
    title += f', for each {axes.columns}'
  if choice:
    title += f', at the best {choice}, of how many'

  def text(column, line):
    if line not in cells[column]:
      return '-'
    found = cells[column][line]
    shown = cell(metric['key'], variants[found.variant])
    if found.variant in bold:
      shown = f'**{shown}**'
    return shown + (f' ({found.best} of {found.count})' if choice else '')

  lines = [
    [line, *sizes, *(text(column, line) for column in cells)]
    for line, sizes in _sized(axes, summary)
    if any(line in of_column for of_column in cells.values())
  ]
  return f'{title}:\n\n{_table([*_heads(axes, summary), *cells], lines)}'


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
  """Returns how many runs of a variant ended, and how many otherwise."""
  others = [
    f'{variant[status]} {status}'
    for status in records.STATUSES[1:]
    if variant.get(status)
  ]
  return ', '.join([str(variant['done']), *others])


def cell(key: str, variant: dict[str, Any]) -> str:
  """Returns a mean with its deviation."""
  figure = variant['figures'][key]
  text = shown(key, figure['mean'])
  if figure['deviation'] is not None and key not in EXACT:
    text += f' ± {shown(key, figure["deviation"], figure["mean"])}'
  return text


def shown(key: str, value: float | None, like: float | None = None) -> str:
  """Formats a number, with as many digits as another, if given."""
  if value is None:
    return '-'
  if key in ('tokens_per_second', 'parameters', 'largest_batch'):
    return f'{value:,.0f}'
  scale = MIB if key.endswith('_bytes') else 1
  scale = KIB if key == 'state_bytes' else scale
  size = abs((value if like is None else like) / scale)
  if key == 'ratio':
    return f'{value:.2f}'
  if 0 < size < TINY:
    return f'{value:.1e}'
  digits = next((d for d, s in ((1, 100), (2, 10), (3, 1)) if size >= s), 4)
  return f'{value / scale:,.{digits}f}'


def _arrow(better):
  return {'higher': ' ↑', 'lower': ' ↓', '': ''}[better]


def _table(head, lines):
  return '\n'.join(tables.aligned(head, lines))
