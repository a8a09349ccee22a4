"""Separated values below a header: CSV as Excel, pandas and others write it.

Commas, semicolons or tabs separate the values; the header shows which, unless a
line `sep=;` before it, a name *.tsv or an option does. Quotes enclose values
with separators or line ends; in *.tsv they are ordinary characters. Lines end
in any of the three ways. A first name that is missing, as of pandas' index, is
'index'; empty columns at the end, as of a spreadsheet, are left out.
"""

import csv
import dataclasses
import io
import itertools
import os
import re
import typing
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from rnn_jax import errors
from rnn_jax.data.tables import lines as lines_lib
from rnn_jax.data.tables import values as values_lib

TABS = '.tsv'
SUFFIXES = ('.csv', TABS)
UNTYPED = True  # only the values show which columns are numbers
SEPARATORS = ',;\t'  # that a header shows; the first one, if it shows none
NAMES = {'tab': '\t', '\\t': '\t'}  # how shells and configs write a tab
LONGEST = 2**26  # bytes of a line, characters of a value: csv takes 16 for each
INDEX = 'index'  # the name of a first column that has none
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\r\n]*', re.I)

Rows = Any  # csv.reader's type has no public name


@dataclasses.dataclass(frozen=True)
class Dialect:
  """How a file separates its values.

  Attributes:
    path: of the file, for messages.
    delimiter: between values.
    quoted: whether quotes enclose values.
    origin: what shows the delimiter, for messages.
    skipped: lines before the header.
    flag: the option that sets the delimiter, for messages.
  """

  path: str
  delimiter: str
  quoted: bool
  origin: str
  skipped: int
  flag: str

  def rows(self, lines: Iterable[str]) -> Rows:
    """Returns the csv.reader of lines with their ends, without the skipped."""
    csv.field_size_limit(LONGEST)
    lines = itertools.islice(lines, self.skipped, None)
    return self.row_reader(lines)

  def row_reader(self, lines: Iterable[str]) -> Rows:
    """Returns the csv.reader of lines below the header."""
    csv.field_size_limit(LONGEST)
    if self.quoted:
      return csv.reader(lines, delimiter=self.delimiter)
    return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)

  def line(self, rows: Rows) -> int:
    """Returns the line in the file of the row that was read last."""
    return rows.line_num + self.skipped

  @property
  def described(self) -> str:
    """Says what separates the values."""
    return f'separated by {self.delimiter!r} ({self.origin})'


def read(path: str, options: lines_lib.Options) -> Iterator[values_lib.Row]:
  """Yields the rows of a file, of strings.

  Raises:
    InputError: there is no header, a row has another number of columns, or the
      file can't be decoded.
  """
  how = dialect(path, options.encoding, options.delimiter)
  rows = how.rows(_lines(path, options.encoding))
  for line, row in named(rows, header(rows, how), how):
    yield values_lib.Row(f'{path}:{line}', row)


@dataclasses.dataclass(frozen=True)
class Table:
  """A file whose rows are read by their offsets.

  Attributes:
    file: its path.
    header: the names of its columns.
    dialect: how it separates values.
  """

  file: str
  header: tuple[str, ...]
  dialect: Dialect
  is_typed: typing.ClassVar[bool] = False

  def rows(self) -> Iterator[values_lib.Located]:
    """Yields the rows; raises InputError at one with too many values."""
    consumed = _lines(self.file)
    reader = self.dialect.rows(consumed)
    header(reader, self.dialect)
    offset = consumed.bytes
    for line, row in named(reader, self.header, self.dialect):
      # The reader takes no line of the next row: the bytes end with this one.
      length = consumed.bytes - offset
      yield values_lib.Located(line, offset, length, row)
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

  def parse(self, content: bytes) -> dict[str, Any]:
    """Returns the row in these bytes, which may follow blank lines."""
    text = io.StringIO(content.decode(), newline='')
    rows = self.dialect.row_reader(text)
    return next(named(rows, self.header, self.dialect))[1]


def open_table(file: str, delimiter: str, flag: str) -> Table:
  """Returns the Table of a file.

  Args:
    file: its path.
    delimiter: between its values; '': what the header shows.
    flag: the option that the delimiter is from.

  Raises:
    InputError: its first line doesn't name each column once.
  """
  how = dialect(file, given=delimiter, flag=flag)
  names = header(how.rows(_lines(file)), how)
  return Table(file, tuple(names), how)


def check_delimiter(given: str, flag: str) -> str:
  """Returns the character that an option names; '': the header shows it.

  Raises:
    InputError: it isn't one that can separate values.
  """
  delimiter = NAMES.get(given, given)
  if delimiter and (
    len(delimiter) != 1 or delimiter in '"\r\n\0' or not delimiter.isascii()
  ):
    errors.refuse(
      flag, given, "give one character, as ';', or 'tab'; '': the header's"
    )
  return delimiter


def dialect(
  path: str,
  encoding: str = 'utf-8',
  given: str = '',
  flag: str = '--delimiter',
) -> Dialect:
  """Returns how a file separates its values.

  Args:
    path: of the file.
    encoding: of its text.
    given: the delimiter, or '': what the file shows.
    flag: the option that `given` is from.

  Raises:
    InputError: the first line can't be read, or `given` is no delimiter.
  """
  given = check_delimiter(given, flag)
  first = next(iter(_lines(path, encoding)), '')
  line = SEPARATOR_LINE.fullmatch(first)
  skipped = int(line is not None)
  has_tabs = path.lower().endswith(TABS)
  if given:
    delimiter, origin = given, f'{flag}={given!r}'
  elif line:
    delimiter, origin = line[1], 'its first line says so'
  elif has_tabs:
    delimiter, origin = '\t', f'the file is *{TABS}'
  else:
    delimiter, origin = _shown(first), 'by its header'
  quoted = not (has_tabs and delimiter == '\t')
  return Dialect(path, delimiter, quoted, origin, skipped, flag)


def header(rows: Rows, dialect: Dialect) -> list[str]:
  """Returns the names of the columns; '' for empty ones at the end.

  Raises:
    InputError: the first row doesn't name each column once.
  """
  where = f'{dialect.path}:{dialect.skipped + 1}'
  try:
    names: list[str] = next(rows, [])
  except csv.Error as error:
    raise _error(error, where) from None
  if len(names) > 1 and not names[0] and INDEX not in names:
    names[0] = INDEX
  own = _own(names)
  if len(set(own)) < len(own) or not own or not all(own):
    raise errors.InputError(
      f'{where}: the first line must name each column once, not {names}, '
      f'{dialect.described}: correct it'
    )
  return names


def named(
  rows: Rows, names: Sequence[str], dialect: Dialect
) -> Iterator[tuple[int, dict[str, str]]]:
  """Yields (number of its last line, {column: value}) of each row.

  Raises:
    InputError: a row has another number of columns.
  """
  own = _own(names)
  try:
    for row in rows:
      if not row:
        continue
      extra = row[len(own) :] if len(row) != len(own) else ()
      if not len(own) <= len(row) <= len(names) or any(extra):
        raise errors.InputError(
          f'{dialect.path}:{dialect.line(rows)}: {len(row)} columns, and the '
          f'header has {len(own)}, {dialect.described}: {_remedy(dialect)}'
        )
      yield dialect.line(rows), dict(zip(own, row, strict=False))
  except csv.Error as error:
    where = f'{dialect.path}:{dialect.line(rows)}'
    raise _error(error, where) from None


def _lines(file, encoding='utf-8'):
  return lines_lib.Lines(file, encoding, LONGEST, old_ends=True)


def _own(names):
  """Returns the names without empty ones at the end."""
  count = len(names)
  while count and not names[count - 1]:
    count -= 1
  return [*names[:count]]


def _shown(first):
  """Returns the separator that occurs most in a header, outside of quotes."""
  plain = re.sub('"[^"]*("|$)', '', first)
  return max(SEPARATORS, key=plain.count)


def _remedy(dialect):
  if not dialect.quoted:
    return 'a tab ends a value'
  return f'quote values that hold it, or name another in {dialect.flag}'


def _error(error, where):
  if 'field larger' in str(error):
    return errors.InputError(
      f'{where}: a value has {LONGEST:,} characters at most: shorten it, or '
      'close its quotes'
    )
  return errors.InputError(f'{where}: {error}: correct the row')
