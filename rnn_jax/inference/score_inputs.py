"""The texts that launch.score reads: documents, lines, or rows of a table.

    for text in open_texts(['notes.txt', 'rows.jsonl']):
      print(text.id, len(text.content))

A table (*.jsonl, *.csv, *.tsv, *.parquet) has a text in a column of each row;
any other file is a document, or a text per line. '-' is standard input. What
can be checked without reading rows and lines is checked at once; those are read
one at a time.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import Iterator
from collections.abc import Sequence

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.tables import lines as lines_lib
from rnn_jax.data.tables import rows as rows_lib
from rnn_jax.data.tables import values
from rnn_jax.system import files
from rnn_jax.system import standard_input

LONGEST = 2**28  # bytes of a document
FLAG = '--column'


@dataclasses.dataclass(frozen=True)
class Text:
  """A text and where it is from: 'FILE' or 'FILE:LINE'."""

  id: str
  content: bytes


def open_texts(
  given: Sequence[str], lines: bool = False, column: str = ''
) -> Iterator[Text]:
  """Returns an iterator over the texts.

  Args:
    given: files, globs or '-'.
    lines: whether each line of a text file is a text.
    column: of the text in rows; '': 'text'. Standard input is JSONL if a
      column is given.

  Raises:
    InputError: no file matches, one can't be read, is too large or not UTF-8,
      or an option has no effect. The iterator raises it for a row that isn't an
      object with a text, and a line that isn't UTF-8; the message has its
      place.
  """
  if lines and column:
    errors.refuse('column', column, 'lines have no columns: leave it out')
  paths = [path for each in given for path in _match(each)]
  if not paths:
    errors.refuse('input', '', 'give a file, a glob or -')
  readers = [_reader(path, lines, column) for path in paths]
  return itertools.chain.from_iterable(read() for read in readers)


def of_string(text: str) -> Text:
  """Returns the text of a command line.

  Raises:
    InputError: it isn't UTF-8.
  """
  return Text('text', _utf8(text, 'text'))


def _match(path):
  """Lists the files that a path or a glob matches, sorted."""
  if path == standard_input.DASH or os.path.isdir(path):
    return [path]
  if not (matched := files.matching(path)):
    errors.refuse('input', path, 'no such file: give a file, a glob or -')
  return matched


def _reader(path, lines, column):
  """Returns what yields the texts of a file, after it was checked."""
  form = 'jsonl' if path == standard_input.DASH and column else ''
  if form or rows_lib.format_of(path) not in ('', 'text'):
    if lines:
      errors.refuse('lines', True, f'{path} is a table of rows: leave it out')
    source = rows_lib.Source(path, form, flag='input')
    source.check()
    return functools.partial(_rows, source, column or columns.TEXT)
  if column:
    errors.refuse(
      'column',
      column,
      f'{path} is not a table, it has none: leave it out',
    )
  with _opened(path):
    pass
  if lines:
    return functools.partial(_lines, path)
  if path != standard_input.DASH:
    _check_size(os.path.getsize(path), path)
    lines_lib.check(path, 'input')
  return functools.partial(_document, path)


def _rows(source, column):
  for where, row, _ in source.rows():
    text = values.text_of(row, column, where, FLAG)
    yield Text(_printable(where), text.encode())


def _lines(path):
  with _opened(path) as file:
    for where, line in lines_lib.located(file, _printable(path)):
      content = line.removesuffix(b'\n').removesuffix(b'\r')
      yield Text(where, _utf8(content, where))


def _document(path):
  name = _printable(path)
  with _opened(path) as file:
    content = file.read(LONGEST + 1)
  _check_size(len(content), name)
  yield Text(name, _utf8(content[lines_lib.mark_size(content) :], name))


def _check_size(size, path):
  if size > LONGEST:
    errors.refuse(
      'input', path, f'a text has {LONGEST:,} bytes at most: give parts of it'
    )


def _opened(path):
  if path == standard_input.DASH:
    return contextlib.nullcontext(sys.stdin.buffer)
  try:
    return open(path, 'rb')
  except OSError as error:
    errors.refuse('input', path, f'{error.strerror}: give a file, a glob or -')


def _printable(name):
  if name == standard_input.DASH:
    return standard_input.NAME
  return os.fsencode(name).decode(errors='backslashreplace')


def _utf8(text, where):
  try:
    content = text.encode() if isinstance(text, str) else text
    content.decode()
  except UnicodeError as error:
    raise errors.InputError(
      f"{where}: the text isn't UTF-8 ({error}): convert it, or leave it out"
    ) from None
  return content
