"""Measured over predicted, by model and mesh: medians of the repeats.

The peak is the first plan's: later ones of a process reuse what it has.
"""

import statistics

from benchmarks import tables


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  lines = []
  for case, row in found.items():
    model, _, mesh = case.rpartition(': ')
    if 'plans' not in row:
      lines.append([model, mesh, tables.short(row), '-', '-', '-', '-'])
      continue
    lines.append([model, mesh, *_cells(row['plans'])])
  heads = [
    'model',
    'mesh',
    'a step, predicted',
    'measured',
    'measured / predicted',
    'state and batch',
    'peak of memory',
  ]
  return f'{tables.provenance(found)}\n\n{tables.table(heads, lines)}'


def _cells(plans):
  pairs = [(one['measured'], one) for one in plans]
  ratios = [
    [real['seconds'] / one['seconds']['step'] for real, one in pairs],
    [real['held'] / one['memory']['arguments'] for real, one in pairs],
    [plans[0]['measured']['peak'] / plans[0]['memory']['total']],
  ]
  predicted = statistics.median(one['seconds']['step'] for one in plans)
  measured = statistics.median(real['seconds'] for real, _ in pairs)
  step, held, peak = map(statistics.median, ratios)
  return [
    tables.seconds(predicted),
    tables.seconds(measured),
    f'{step:.2f} ({min(ratios[0]):.2f} to {max(ratios[0]):.2f})',
    f'{held:.3g}',
    f'{peak:.3g}',
  ]
