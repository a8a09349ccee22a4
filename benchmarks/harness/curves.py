"""Rows as curves: what grows with one size, by who does it."""

from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

Curve = dict[int, tables.Row]  # by size


def of(rows: tables.Rows, kind: str) -> dict[str, Curve]:
  """The curves of the cases that are named '<kind> <size>: <who>', by who."""
  curves = {}
  for name, row in tables.with_prefix(rows, f'{kind} ').items():
    size, _, who = name.partition(': ')
    curves.setdefault(who, {})[int(size)] = row
  return curves


def points(curve: Curve, key: str) -> list[tuple[int, float]]:
  """(size, value) of the rows that have one, by size."""
  return [
    (size, row[key]) for size, row in sorted(curve.items()) if row.get(key)
  ]


def table(curves: dict[str, Curve], kind: str) -> str:
  """Markdown: a line for each size, a column of times for each curve."""
  sizes = sorted({size for curve in curves.values() for size in curve})
  lines = [
    [f'{size:,}', *(_cell(curve.get(size)) for curve in curves.values())]
    for size in sizes
  ]
  return tables.table(' | '.join([kind, *curves]), lines)


def _cell(row):
  if row is None or 'error' in row:
    return tables.timed(row)
  memory = row.get('temp_bytes')
  more = '' if memory is None else f', {tables.mebibytes(memory)}'
  return tables.seconds(row['median']) + more


def pictures(
  curves: dict[str, Curve], kind: str, plots: plots_lib.Plots, timed: str
) -> tables.Report:
  """Markdown of plots: seconds of what is `timed`, and its temporaries."""
  for key, label in (
    ('median', f'seconds {timed}'),
    ('temp_bytes', 'XLA temporaries, bytes'),
  ):
    series = {name: points(curve, key) for name, curve in curves.items()}
    if any(series.values()):
      yield plots.lines(f'{kind}_{key}', series, (kind, label))
