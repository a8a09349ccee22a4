"""The texts that launch.score reads: documents, lines, or rows of JSONL.

    for text in open_texts(Inputs(('notes.txt', 'rows.jsonl'))):
      print(text.id, len(text.content))

A file *.jsonl has a text in a column of each row; any other file is a document,
or a text per line. '-' is standard input. What can be checked without reading
rows and lines is checked at once; those are read one at a time.
"""

import contextlib
import dataclasses
import glob
import os
import sys
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.sources import text as text_source
from rnn_jax.data.tables import jsonl
from rnn_jax.data.tables import lines as lines_lib
from rnn_jax.data.tables import values

STDIN = '-'
COLUMN = 'text'
LONGEST = 2**28  # bytes of a document
LONGEST_LINE = 2**26  # bytes of a line
FLAG = '--column'


@dataclasses.dataclass(frozen=True)
class Inputs:
  """Which files to read, and how.

  Attributes:
    paths: files, globs or '-'.
    lines: whether each line of a text file is a text.
    column: of the text in JSONL rows; '': COLUMN. Standard input is JSONL if a
      column is given.
  """

  paths: tuple[str, ...]
  lines: bool = False
  column: str = ''


@dataclasses.dataclass(frozen=True)
class Text:
  """A text and where it is from: 'FILE' or 'FILE:LINE'."""

  id: str
  content: bytes


def open_texts(inputs: Inputs) -> Iterator[Text]:
  """Returns an iterator over the texts.

  Raises:
    InputError: no file matches, one can't be read, is too large or not UTF-8,
      or an option has no effect. The iterator raises it for a row that isn't an
      object with a text, and a line that isn't UTF-8; the message has its
      place.
  """
  if inputs.lines and inputs.column:
    errors.refuse(
      'column', inputs.column, 'lines have no columns: leave it out'
    )
  paths = [path for given in inputs.paths for path in _match(given)]
  if not paths:
    errors.refuse('input', '', 'give a file, a glob or -')
  for path in paths:
    _check(path, inputs)
  return (text for path in paths for text in _read(path, inputs))


def of_string(text: str) -> Text:
  """Returns the text of a command line.

  Raises:
    InputError: it isn't UTF-8.
  """
  return Text('text', _utf8(text, 'text'))


def _match(path):
  """Lists the files that a path or a glob matches, sorted."""
  if path == STDIN or os.path.exists(path):
    return [path]
  matched = sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))
  if not matched:
    errors.refuse('input', path, 'no such file: give a file, a glob or -')
  return matched


def _has_rows(path, inputs):
  return bool(inputs.column) if path == STDIN else path.endswith('.jsonl')


def _check(path, inputs):
  rows = _has_rows(path, inputs)
  if inputs.column and not rows:
    errors.refuse(
      'column',
      inputs.column,
      f'{path} is not *.jsonl, it has none: leave it out',
    )
  if inputs.lines and rows:
    errors.refuse('lines', True, f'{path} has rows of JSON: leave it out')
  if path == STDIN:
    return
  with _opened(path):
    pass
  if not (rows or inputs.lines):
    _check_size(os.path.getsize(path), path)
    text_source.check_text(path, 'input')


def _check_size(size, path):
  if size > LONGEST:
    errors.refuse(
      'input', path, f'a text has {LONGEST:,} bytes at most: give parts of it'
    )


def _read(path, inputs):
  """Yields the texts of a file."""
  name = os.fsencode(path).decode(errors='backslashreplace')
  with _opened(path) as file:
    if _has_rows(path, inputs):
      yield from _rows(file, name, inputs.column or COLUMN)
    elif inputs.lines:
      for where, line in lines_lib.located(file, name, LONGEST_LINE):
        content = line.removesuffix(b'\n').removesuffix(b'\r')
        yield Text(where, _utf8(content, where))
    else:
      content = file.read(LONGEST + 1)
      _check_size(len(content), name)
      content = content[lines_lib.mark_size(content) :]
      yield Text(name, _utf8(content, name))


def _opened(path):
  if path == STDIN:
    return contextlib.nullcontext(sys.stdin.buffer)
  try:
    return open(path, 'rb')
  except OSError as error:
    errors.refuse('input', path, f'{error.strerror}: give a file, a glob or -')


def _rows(file, name, column):
  for where, line in lines_lib.located(file, name, LONGEST_LINE):
    if line.strip():
      row = jsonl.row_of_bytes(line, where)
      yield Text(where, _utf8(values.text_of(row, column, where, FLAG), where))


def _utf8(text, where):
  try:
    content = text.encode() if isinstance(text, str) else text
    content.decode()
  except UnicodeError as error:
    raise errors.InputError(
      f"{where}: the text isn't UTF-8 ({error}): convert it, or leave it out"
    ) from None
  return content
