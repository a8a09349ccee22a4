"""Comma- or tab-separated values with a header of column names.

Quotes enclose values with commas or line ends. In tab-separated files they are
ordinary characters.
"""

import csv
import io
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import lines

SUFFIXES = ('.csv', '.tsv')
UNTYPED = True  # only the values show which columns are numbers
TABS = '.tsv'
LONGEST = 2**31 - 1  # characters of a value; csv's own limit is 131,072


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example of strings for each row.

  Raises:
    InputError: there is no header, or a row has another number of columns.
  """
  tabs = path.lower().endswith(TABS)
  rows = _rows(lines.whole(path, options.encoding), tabs)
  header: list[str] = next(rows, [])
  if len(set(header)) < len(header) or not all(header):
    raise errors.InputError(
      f'{path}:1: the first line must name each column once, not {header}'
    )
  try:
    for row in rows:
      where = f'{path}:{rows.line_num}'
      if not row:
        continue
      if len(row) != len(header):
        raise errors.InputError(
          f'{where}: {len(row)} columns, and the header has {len(header)}: '
          + ('a tab ends a value' if tabs else 'quote values with commas')
        )
      yield examples.Example(where, dict(zip(header, row, strict=True)))
  except csv.Error as error:
    raise errors.InputError(f'{path}:{rows.line_num}: {error}') from None


def _rows(text, tabs):
  csv.field_size_limit(LONGEST)
  file = io.StringIO(text, newline='')
  if tabs:
    return csv.reader(file, delimiter='\t', quoting=csv.QUOTE_NONE)
  return csv.reader(file)
