"""Where predictions are written: JSON lines, or a table if the name says so.

    with opened('predicted.csv') as write:
      write([{'id': 0, 'label': 'good', 'probabilities': {'good': 0.9, ...}}])

In .csv and .tsv the probability of each class has a column of its own,
probability_NAME, and other lists and objects are JSON. A table has the columns
of its first row. Any other name has JSON lines.
"""

import contextlib
import csv
import io
import itertools
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import BinaryIO

from rnn_jax import errors
from rnn_jax.system import files

FLAG = '--output'
PROBABILITIES = 'probabilities'
LABEL = 'label'
ENDS = '\t', '\n', '\r'  # what ends a value of .tsv
NOT_TEXT = ('.xlsx', '.xls', '.gz', '.zip')

Row = dict[str, Any]
Write = Callable[[Sequence[Row]], None]


def check(path: str) -> None:
  """Checks that a name is one of a format that can be written.

  Raises:
    InputError: it isn't.
  """
  if path.lower().endswith(NOT_TEXT):
    errors.refuse(FLAG, path, 'give a name *.jsonl, *.csv, *.tsv or *.parquet')


@contextlib.contextmanager
def opened(path: str, delimiter: str = ',') -> Iterator[Write]:
  """Opens a new file in the format of its name, or standard output.

  Args:
    path: its name; '': standard output.
    delimiter: between the values of .csv.

  Yields:
    A function that writes rows; they are whole in the file when it returns, and
    in .parquet when the context ends.

  Raises:
    InputError: the file exists or can't be made. The function raises it for a
      row that the format can't hold.
  """
  check(path)
  if not path:
    yield _text_writer(_json_line, _write_out)
    return
  with _created(path) as file:
    lower = path.lower()
    if lower.endswith('.parquet'):
      with contextlib.closing(_Parquet(file, path)) as table:
        yield table.write
      return

    def write_text(text):
      file.write(text.encode())
      file.flush()

    if lower.endswith('.csv'):
      line = _Table(path, _separated(delimiter)).line
    elif lower.endswith('.tsv'):
      line = _Table(path, _tabbed).line
    else:
      line = _json_line
    yield _text_writer(line, write_text)


def _created(path) -> BinaryIO:
  try:
    return open(path, 'xb')
  except FileExistsError:
    errors.refuse(FLAG, path, 'it exists already: remove it, or name another')
  except OSError as error:
    errors.refuse(FLAG, path, f'{error.strerror}: name another file')


def _write_out(text):
  sys.stdout.write(text)
  sys.stdout.flush()


def _text_writer(line, write) -> Write:
  """Returns a function that writes rows, `line` of each, at once."""

  def write_rows(rows):
    done, error = [], None
    try:
      for row in rows:
        done.append(line(row))
    except errors.InputError as caught:
      error = caught
    write(''.join(done))
    if error is not None:
      raise error

  return write_rows


def _json_line(row):
  return files.to_json(row, ensure_ascii=False) + '\n'


class _Table:
  """Lines of a table, which begin with a header."""

  def __init__(self, path, join):
    self._path = path
    self._join = join
    self._names = None

  def line(self, row):
    """Returns the line of a row, with the header before the first one."""
    values = dict(_flat(row, self._path))
    begin = ''
    if self._names is None:
      self._names = [*values]
      begin = self._join(self._names, self._path)
    if unknown := values.keys() - set(self._names):
      raise errors.InputError(
        f'{FLAG}={self._path!r}: row {row["id"]!r} has the column '
        f'{min(unknown)!r}, which the first row lacks: name a *.jsonl'
      )
    cells = [_cell(values.get(name)) for name in self._names]
    return begin + self._join(cells, self._path)


def _flat(row, path):
  """Yields (column, value) of a row, a column for each class."""
  seen = set()
  for name, value in row.items():
    if name == PROBABILITIES:
      pairs = [(f'probability_{each}', p) for each, p in value.items()]
    else:
      pairs = [(name, value)]
    for pair in pairs:
      if pair[0] in seen:
        raise errors.InputError(
          f'{FLAG}={path!r}: two columns would be {pair[0]!r}: name a *.jsonl, '
          'or rename the one of the input'
        )
      seen.add(pair[0])
      yield pair


def _cell(value):
  if value is None:
    return ''
  return value if isinstance(value, str) else files.to_json(value)


def _separated(delimiter):
  def join(cells, path):
    del path
    # csv quotes line feeds and carriage returns if both end a line.
    text = io.StringIO(newline='')
    csv.writer(text, delimiter=delimiter, lineterminator='\r\n').writerow(cells)
    return text.getvalue()

  return join


def _tabbed(cells, path):
  for cell, end in itertools.product(cells, ENDS):
    if end in cell:
      raise errors.InputError(
        f'{FLAG}={path!r}: the value {cell[:40]!r} has {end!r}, which *.tsv '
        "can't hold: name a *.csv or *.jsonl"
      )
  return '\t'.join(cells) + '\n'


class _Parquet:
  """A file of Parquet with the columns and types of its first rows."""

  def __init__(self, file: BinaryIO, path: str) -> None:
    self._file = file
    self._path = path
    self._writer: Any = None

  def write(self, rows: Sequence[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    schema = None if self._writer is None else self._writer.schema
    try:
      table = pyarrow.Table.from_pylist([*rows], schema)
      if self._writer is None:
        # The first rows may all be without a label.
        n = table.schema.get_field_index(LABEL)
        if n >= 0 and pyarrow.types.is_null(table.schema.field(n).type):
          text = pyarrow.field(LABEL, pyarrow.string())
          table = table.cast(table.schema.set(n, text))
        self._writer = parquet.ParquetWriter(self._file, table.schema)
      self._writer.write_table(table)
    except (pyarrow.ArrowException, TypeError, OverflowError) as error:
      raise errors.InputError(
        f'{FLAG}={self._path!r}: the rows of {rows[0]["id"]!r} and after have '
        f'other columns or types ({errors.first_line(error, 100)}): name a '
        '*.jsonl'
      ) from None

  def close(self) -> None:
    if self._writer is not None:
      self._writer.close()
