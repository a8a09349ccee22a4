"""Tables of reports, in Markdown that is readable as text too."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
  """Returns the lines of an aligned table, numbers to the right."""
  rows = [*rows]
  cells = [header, *rows]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  right = [_is_number(column) for column in zip(*rows, strict=True)]
  right = right or [False] * len(header)

  def line(row):
    padded = (
      f'{x:>{w}}' if r else f'{x:<{w}}'
      for x, w, r in zip(row, widths, right, strict=True)
    )
    return f'| {" | ".join(padded)} |'

  rule = ['-' * (w - r) + ':' * r for w, r in zip(widths, right, strict=True)]
  return [line(header), line(rule), *map(line, rows)]


def of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
  """Returns the lines of a table of rows.

  Args:
    rows: a dict each.
    columns: 'key', or with a header and a format 'loss, nats=loss:.3f'; None is
      '-'.
  """
  fields = [_field(column) for column in columns]
  cells = [[_cell(row[key], form) for _, key, form in fields] for row in rows]
  return aligned([header for header, _, _ in fields], cells)


def _field(column):
  """Returns (header, key, format)."""
  header, _, field = column.rpartition('=')
  key, _, form = field.partition(':')
  return header or key, key, form


def _cell(value, form):
  return '-' if value is None else format(value, form)


def _is_number(column):
  # A cell may be bold, or empty.
  return all(x.lstrip('*')[:1].isdigit() or x in ('-', '') for x in column)
