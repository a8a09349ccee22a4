"""The recurrence's time by the length of its chunks."""

import math

from benchmarks import tables


def render(found, plots):
  """Markdown of one machine's rows; times are medians."""
  del plots
  measured = {
    name: row for name, row in found.items() if ', chunks of ' in name
  }
  lengths = sorted({_length(row) for row in measured.values()})
  shapes = {}
  for name, row in measured.items():
    shape = name.rpartition(', chunks of ')[0]
    shapes.setdefault(shape, {})[_length(row)] = row
  lines = [
    [shape, *(_cell(rows.get(length)) for length in lengths)]
    for shape, rows in shapes.items()
  ]
  whole = [rows for rows in shapes.values() if _complete(rows, lengths)]
  if whole:
    best = [min(row['median'] for row in rows.values()) for rows in whole]
    means = (_mean(length, whole, best) for length in lengths)
    lines.append(['relative to the best, mean', *map(tables.times, means)])
  head = ['(B, L, H, K, P)', *(f'{length} steps' for length in lengths)]
  return f'{tables.provenance(found)}\n\n{tables.table(head, lines)}'


def _length(row):
  return row['parameters']['chunk_length']


def _complete(rows, lengths):
  return all('median' in rows.get(length, {}) for length in lengths)


def _cell(row):
  good = row and 'median' in row
  return tables.seconds(row['median']) if good else '-'


def _mean(length, shapes, best):
  """The geometric mean of what that length costs of the best one's time."""
  ratios = (
    rows[length]['median'] / least
    for rows, least in zip(shapes, best, strict=True)
  )
  return math.exp(sum(map(math.log, ratios)) / len(shapes))
