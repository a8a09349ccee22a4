"""JSONL files: each line is an object, and a document is a text in it.

The columns and classes are those of rnn_jax/data/columns.py, what a row becomes
is in rnn_jax/data/text/tables.py.
"""

import dataclasses
import os
import typing
from collections.abc import Iterator

from rnn_jax import config as config_lib
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.tables import jsonl
from rnn_jax.data.tables import lines
from rnn_jax.data.text import documents
from rnn_jax.data.text import tables

BLOCK = 2**20  # bytes that are in memory at a time


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and the classes of the rows.

    Raises:
      InputError: a row can't be read, or they leave a choice.
    """
    return tables.resolve(self, task.classifies, JsonLines)


@dataclasses.dataclass(frozen=True)
class JsonLines:
  """The Table of a file, or of some of its lines.

  Attributes:
    file: its path.
    start: the first byte.
    stop: the byte after the last; -1: the file's end.
    before: lines that precede it.
  """

  file: str
  start: int = 0
  stop: int = -1
  before: int = 0
  is_typed: typing.ClassVar[bool] = True

  def rows(self) -> Iterator[tables.Located]:
    """Yields the rows; raises InputError at one that isn't an object."""
    offset = self.start
    for number, line in enumerate(self._lines(), self.before + 1):
      mark = lines.mark_size(line) if not offset else 0
      if line[mark:].strip():
        where = f'{self.file}:{number}'
        row = jsonl.row_of_bytes(line[mark:], where)
        yield tables.Located(number, offset + mark, len(line) - mark, row)
      offset += len(line)

  def parts(self, size: int) -> Iterator[tuple['JsonLines', int]]:
    """Yields tables of its lines, in turn, of `size` bytes or a line more."""
    end, start = os.path.getsize(self.file), 0
    with open(self.file, 'rb') as file:
      while start < end:
        file.seek(start + size - 1)
        while file.tell() < end and not file.readline(BLOCK).endswith(b'\n'):
          pass  # to the end of the line that is cut
        stop = min(file.tell(), end)
        yield JsonLines(self.file, start, stop), stop - start
        start = stop

  def lines(self) -> int:
    """Returns how many lines it has, blank ones included."""
    return sum(1 for _ in self._lines())

  def after(self, lines: int) -> 'JsonLines':
    """Returns the same part, which so many lines of the file precede."""
    return dataclasses.replace(self, before=lines)

  def _lines(self):
    with open(self.file, 'rb') as file:
      lines.check_kind(file.read(lines.SEEN), self.file)
      file.seek(self.start)
      left = self.stop - self.start if self.stop >= 0 else -1
      for line in lines.bounded(file, self.file, before=self.before):
        if not left:
          return
        yield line
        left -= len(line)

  def parse(self, content: bytes) -> tables.Row:
    """Returns the row in these bytes."""
    return jsonl.row_of_bytes(content, self.file)


raw_files = text.raw_files


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split; rows with an empty text are skipped.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, or a line isn't
      an object with a text in `data.field` and a class in `data.label`.
  """
  return tables.load(data, JsonLines)
