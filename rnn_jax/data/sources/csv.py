"""CSV and TSV files: a header of column names, and a document in each row.

    python -m launch.train --config=configs/text_classification.py \\
        --config.data.path=tickets.csv --workdir=runs/tickets

The columns and classes are those of rnn_jax/data/columns.py, what a row becomes
is in rnn_jax/data/text/tables.py. A difficulty is a number as text.
"""

import dataclasses
import io
import os
import typing
from collections.abc import Iterator

from rnn_jax import config as config_lib
from rnn_jax.data.preparation import lines
from rnn_jax.data.preparation.formats import csv
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.text import documents
from rnn_jax.data.text import tables


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""

  def settle(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and the classes of the rows.

    Raises:
      InputError: a row can't be read, or they leave a choice.
    """
    return tables.settle(self, task.classifies, open_table)


@dataclasses.dataclass(frozen=True)
class Table:
  """The Table of a file.

  Attributes:
    file: its path.
    header: the names of its columns.
  """

  file: str
  header: tuple[str, ...]
  is_typed: typing.ClassVar[bool] = False

  def rows(self) -> Iterator[tables.Located]:
    """Yields the rows; raises InputError at one with too many values."""
    consumed = _Lines(self.file)
    reader = csv.reader(consumed, self.file)
    csv.header(reader, self.file)
    offset = consumed.bytes
    for line, values in csv.named(reader, self.header, self.file):
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
    rows = csv.named(csv.reader(text, self.file), self.header, self.file)
    return next(rows)[1]


class _Lines:
  """Iterates over the lines of a file, and counts their bytes."""

  def __init__(self, path):
    self._path = path
    self.bytes = 0

  def __iter__(self):
    with open(self._path, 'rb') as file:
      for line in file:
        first = not self.bytes
        self.bytes += len(line)
        text = line.decode()
        yield text.removeprefix(lines.MARK) if first else text


raw_files = text.raw_files


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split; rows with an empty text are skipped.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, its header or a
      row is malformed, or a row lacks a text or a class.
  """
  return tables.load(data, open_table)


def open_table(file: str) -> Table:
  """Returns the Table of a file.

  Raises:
    InputError: its first line doesn't name each column once.
  """
  reader = csv.reader(_Lines(file), file)
  return Table(file, tuple(csv.header(reader, file)))
