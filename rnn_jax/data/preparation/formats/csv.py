"""Comma- or tab-separated values under a line of column names."""

import csv
import io
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import lines

SUFFIXES = ('.csv', '.tsv')


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example of strings for each row.

  Raises:
    InputError: there is no header, or a row has other columns than it.
  """
  text = lines.whole(path, options.encoding)
  delimiter = '\t' if path.endswith('.tsv') else ','
  rows = csv.reader(io.StringIO(text, newline=''), delimiter=delimiter)
  header = next(rows, [])
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
          'quote what holds the delimiter'
        )
      yield examples.Example(where, dict(zip(header, row, strict=True)))
  except csv.Error as error:
    raise errors.InputError(f'{path}:{rows.line_num}: {error}') from None
