"""Variants as lines and columns, by the parts of their names.

'gru/s5/0.003' of Axes('cell', 'task', 'rate') is on the line gru in the column
s5, as one of several rates. Of the variants that differ only in `best`, the one
with the best mean counts, for each metric its own.
"""

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

SEPARATOR = '/'


class Axes(NamedTuple):
  """What the parts of variants' names are; empty: they lack that part."""

  lines: str = 'variant'
  columns: str = ''
  best: str = ''

  @property
  def names(self) -> tuple[str, ...]:
    """What the parts are, in their order."""
    return tuple(filter(None, self))

  def place(self, variant: str) -> 'Axes':
    """Returns the parts of a variant's name."""
    parts = iter(variant.split(SEPARATOR))
    return Axes(*(next(parts) if name else '' for name in self))


class Cell(NamedTuple):
  """The best variant of a line and a column."""

  variant: str
  best: str  # its part
  count: int  # of variants with a score


def cells(
  axes: Axes, metric: Mapping[str, str], variants: Mapping[str, Any]
) -> dict[str, dict[str, Cell]]:
  """Returns {column: {line: the best of its variants that have a score}}.

  Args:
    axes: of the grid.
    metric: of a summary: its key, and which way is better.
    variants: of a summary.
  """
  by_place = {}
  for name, variant in variants.items():
    place = axes.place(name)
    of_column = by_place.setdefault(place.columns, {})
    if variant['figures'][metric['key']]['mean'] is not None:
      of_column.setdefault(place.lines, []).append(name)

  def mean(name):
    return variants[name]['figures'][metric['key']]['mean']

  choose = max if metric['better'] == 'higher' else min
  return {
    column: {
      line: Cell(
        name := choose(names, key=mean), axes.place(name).best, len(names)
      )
      for line, names in lines.items()
    }
    for column, lines in by_place.items()
  }
