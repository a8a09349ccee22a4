"""CSV and TSV files: a header of column names, and a document in each row.

    python -m launch.train --config=configs/text_classification.py \\
        --config.data.path=tickets.csv --workdir=runs/tickets

How rows are separated is in rnn_jax/data/tables/csv.py, the columns and classes
are those of rnn_jax/data/columns.py, and what a row becomes is in
rnn_jax/data/text/tables.py. A difficulty is a number as text.
"""

import dataclasses
import functools
import io
import os
import typing
from collections.abc import Callable
from collections.abc import Iterator

from rnn_jax import config as config_lib
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import lines
from rnn_jax.data.text import documents
from rnn_jax.data.text import tables

FLAG = 'data.delimiter'


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""

  # Between values; empty: comma, semicolon or tab, by the header.
  delimiter: str = ''

  def check(self, config: config_lib.Config) -> None:
    super().check(config)
    csv.check_delimiter(self.delimiter, FLAG)

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and the classes of the rows.

    Raises:
      InputError: a row can't be read, or they leave a choice.
    """
    return tables.resolve(self, task.classifies, _opener(self))


@dataclasses.dataclass(frozen=True)
class Table:
  """The Table of a file.

  Attributes:
    file: its path.
    header: the names of its columns.
    dialect: how it separates values.
  """

  file: str
  header: tuple[str, ...]
  dialect: csv.Dialect
  is_typed: typing.ClassVar[bool] = False

  def rows(self) -> Iterator[tables.Located]:
    """Yields the rows; raises InputError at one with too many values."""
    consumed = _lines(self.file)
    reader = self.dialect.rows(consumed)
    csv.header(reader, self.dialect)
    offset = consumed.bytes
    for line, values in csv.named(reader, self.header, self.dialect):
      # The reader takes no line of the next row: the bytes end with this one.
      length = consumed.bytes - offset
      yield tables.Located(line, offset, length, values)
      offset = consumed.bytes

  def parts(self, size: int) -> Iterator[tuple['Table', int]]:
    """Yields itself: a line end within quotes may be anywhere in a file."""
    del size
    yield self, os.path.getsize(self.file)

  def lines(self) -> int:
    """Returns 0: no part follows."""
    return 0

  def after(self, lines: int) -> 'Table':
    """Returns itself, the first part."""
    assert not lines
    return self

  def parse(self, content: bytes) -> tables.Row:
    """Returns the row in these bytes, which may follow blank lines."""
    text = io.StringIO(content.decode(), newline='')
    rows = self.dialect.row_reader(text)
    return next(csv.named(rows, self.header, self.dialect))[1]


raw_files = text.raw_files


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split; rows with an empty text are skipped.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, its header or a
      row is malformed, or a row lacks a text or a class.
  """
  return tables.load(data, _opener(data))


def open_table(file: str, delimiter: str = '') -> Table:
  """Returns the Table of a file.

  Args:
    file: its path.
    delimiter: between its values; '': what the header shows.

  Raises:
    InputError: its first line doesn't name each column once.
  """
  dialect = csv.dialect(file, given=delimiter, flag=FLAG)
  names = csv.header(dialect.rows(_lines(file)), dialect)
  return Table(file, tuple(names), dialect)


def _opener(data) -> Callable[[str], Table]:
  return functools.partial(open_table, delimiter=data.delimiter)


def _lines(file):
  return lines.Lines(file, longest=csv.LONGEST, old_ends=True)
