"""Comma- or tab-separated values with a header of column names.

Quotes enclose values with commas or line ends. In tab-separated files they are
ordinary characters.
"""

import csv
import io
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import lines

SUFFIXES = ('.csv', '.tsv')
UNTYPED = True  # only the values show which columns are numbers
TABS = '.tsv'
QUOTE = 'quote values with commas'
LONGEST = 2**31 - 1  # characters of a value; csv's own limit is 131,072

Rows = Any  # csv.reader's type has no public name


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example of strings for each row.

  Raises:
    InputError: there is no header, or a row has another number of columns.
  """
  text = io.StringIO(lines.whole(path, options.encoding), newline='')
  rows = reader(text, path)
  for line, values in named(rows, header(rows, path), path):
    yield examples.Example(f'{path}:{line}', values)


def reader(lines: Iterable[str], path: str) -> Rows:
  """Returns the csv.reader of a file's lines, with tabs if its name says so."""
  csv.field_size_limit(LONGEST)
  if _has_tabs(path):
    return csv.reader(lines, delimiter='\t', quoting=csv.QUOTE_NONE)
  return csv.reader(lines)


def header(rows: Rows, path: str) -> list[str]:
  """Returns the names of the columns.

  Raises:
    InputError: the first row doesn't name each column once.
  """
  try:
    names: list[str] = next(rows, [])
  except csv.Error as error:
    raise errors.InputError(f'{path}:1: {error}') from None
  if len(set(names)) < len(names) or not all(names):
    raise errors.InputError(
      f'{path}:1: the first line must name each column once, not {names}'
    )
  return names


def named(
  rows: Rows, names: Sequence[str], path: str
) -> Iterator[tuple[int, dict[str, str]]]:
  """Yields (number of its last line, {column: value}) of each row.

  Raises:
    InputError: a row has another number of columns.
  """
  try:
    for row in rows:
      if not row:
        continue
      if len(row) != len(names):
        raise errors.InputError(
          f'{path}:{rows.line_num}: {len(row)} columns, and the header has '
          f'{len(names)}: '
          + ('a tab ends a value' if _has_tabs(path) else QUOTE)
        )
      yield rows.line_num, dict(zip(names, row, strict=True))
  except csv.Error as error:
    raise errors.InputError(f'{path}:{rows.line_num}: {error}') from None


def _has_tabs(path):
  return path.lower().endswith(TABS)
