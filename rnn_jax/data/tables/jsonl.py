"""JSON Lines: each line is an object."""

import dataclasses
import json
import os
import re
import typing
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from rnn_jax import errors
from rnn_jax.data.tables import lines as lines_lib
from rnn_jax.data.tables import values
from rnn_jax.system import files

SUFFIXES = ('.jsonl', '.ndjson')
BLOCK = 2**20  # bytes that are in memory at a time
OLD_ENDS = 'its lines end in carriage returns only: end them with line feeds'
SURROGATE = re.compile(r'\\u[dD][89a-fA-F]')


def read(path: str, options: lines_lib.Options) -> Iterator[values.Row]:
  """Yields the rows of a file.

  Raises:
    InputError: a line can't be decoded, or as `parse`.
  """
  yield from parse(lines_lib.read(path, options.encoding))


def parse(given: Iterable[tuple[str, str]]) -> Iterator[values.Row]:
  """Yields the row of each (place, line) that isn't blank.

  Raises:
    InputError: as `row`.
  """
  for where, line in given:
    if line.strip():
      yield values.Row(where, row(line, where))


def row(line: str, where: str) -> dict[str, Any]:
  """Returns the object in a line.

  Args:
    line: without a byte order mark.
    where: its place, for messages.

  Raises:
    InputError: it isn't one, and the message says what it is; or it has an
      unpaired surrogate, which JSON can encode but UTF-8 can't.
  """
  try:
    value = files.from_json(line)
  except ValueError as error:
    remedy = OLD_ENDS if '\r' in line.strip() else 'fix the row, or remove it'
    raise errors.InputError(f'{where}: not JSON: {error}: {remedy}') from None
  if not isinstance(value, dict):
    raise errors.InputError(
      f'{where}: a row must be an object, not {type(value).__name__}: write an '
      'object per line'
    )
  if SURROGATE.search(line):
    _check_surrogates(value, where)
  return value


def _check_surrogates(row, where):
  for column, value in row.items():
    try:
      json.dumps([column, value], ensure_ascii=False).encode()
    except UnicodeEncodeError:
      raise errors.InputError(
        f'{where}: {ascii(column)} has an unpaired surrogate: fix it'
      ) from None


@dataclasses.dataclass(frozen=True)
class Table:
  """A file whose rows are read by their offsets, or some of its lines.

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

  def rows(self) -> Iterator[values.Located]:
    """Yields the rows; raises InputError at one that isn't an object."""
    offset = self.start
    for number, line in enumerate(self._lines(), self.before + 1):
      mark = lines_lib.mark_size(line) if not offset else 0
      if line[mark:].strip():
        found = self._row(line[mark:], f'{self.file}:{number}')
        yield values.Located(number, offset + mark, len(line) - mark, found)
      offset += len(line)

  def parts(self, size: int) -> Iterator[tuple['Table', int]]:
    """Yields tables of its lines, in turn, of `size` bytes or a line more."""
    end, start = os.path.getsize(self.file), 0
    with open(self.file, 'rb') as file:
      while start < end:
        file.seek(start + size - 1)
        while file.tell() < end and not file.readline(BLOCK).endswith(b'\n'):
          pass  # to the end of the line that is cut
        stop = min(file.tell(), end)
        yield Table(self.file, start, stop), stop - start
        start = stop

  def lines(self) -> int:
    """Returns how many lines it has, blank ones included."""
    return sum(1 for _ in self._lines())

  def after(self, lines: int) -> 'Table':
    """Returns the same part, which so many lines of the file precede."""
    return dataclasses.replace(self, before=lines)

  def parse(self, content: bytes) -> dict[str, Any]:
    """Returns the row in these bytes."""
    return self._row(content, self.file)

  def _row(self, content, where):
    return row(lines_lib.decode(content, 'utf-8', where), where)

  def _lines(self):
    with open(self.file, 'rb') as file:
      lines_lib.check_kind(file.read(lines_lib.SEEN), self.file)
      file.seek(self.start)
      left = self.stop - self.start if self.stop >= 0 else -1
      for line in lines_lib.bounded(file, self.file, before=self.before):
        if not left:
          return
        yield line
        left -= len(line)
