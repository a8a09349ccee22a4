"""Separated values with a header of column names, see data/tables/csv.py."""

from collections.abc import Iterator

from rnn_jax.data.preparation import examples
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import lines

SUFFIXES = ('.csv', '.tsv')
UNTYPED = True  # only the values show which columns are numbers


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example of strings for each row.

  Raises:
    InputError: there is no header, a row has another number of columns, or the
      file can't be decoded.
  """
  dialect = csv.dialect(path, options.encoding, options.delimiter)
  text = lines.Lines(path, options.encoding, csv.LONGEST, old_ends=True)
  rows = dialect.rows(text)
  for line, values in csv.named(rows, csv.header(rows, dialect), dialect):
    yield examples.Example(f'{path}:{line}', values)
