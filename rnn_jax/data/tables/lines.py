"""Text files as anybody may have written them: one way to open and read them.

    for where, line in read('notes.txt'): ...        'notes.txt:1', 'the line'

A byte order mark isn't part of the text. A line is bounded while it is read. A
byte that isn't text is named by its file and line, and so is what a file holds
instead of text: a gzip file, an Excel workbook.
"""

import codecs
import dataclasses
import io
import os
from collections.abc import Iterator
from typing import BinaryIO

from rnn_jax import errors
from rnn_jax.system import files as files_lib

MARK = '\ufeff'
MARK_BYTES = MARK.encode()
LONGEST = 2**28  # bytes of a line
BLOCK = 2**24  # bytes of a file in memory at a time
SEEN = 16  # bytes that show what a file is
AS_TEXT = 'save it as text in UTF-8'
UTF_16 = f'text in UTF-16: {AS_TEXT}, or use launch.prepare --encoding=utf-16'
KINDS = (  # how files begin that aren't text, and what to say
  (b'\x1f\x8b', 'a gzip file: unpack it with gunzip'),
  (b'\xfd7zXZ\0', 'an xz file: unpack it with unxz'),
  (b'\x28\xb5\x2f\xfd', 'a Zstandard file: unpack it with unzstd'),
  (b'BZh91AY&SY', 'a bzip2 file: unpack it with bunzip2'),
  (b'PK\x03\x04', f'a zip archive, as .xlsx is one: unpack it, or {AS_TEXT}'),
  (b'\xd0\xcf\x11\xe0\xa1\xb1', f'a file of Excel or Word: {AS_TEXT}'),
  (b'PAR1\x15', 'a Parquet file: name it *.parquet'),
  (b'\xff\xfe', UTF_16),
  (b'\xfe\xff', UTF_16),
)


@dataclasses.dataclass(frozen=True)
class Options:
  """How files of rows are read.

  Attributes:
    document: what is a row of plain text, 'line' or 'file'.
    encoding: of text.
    delimiter: between the values of CSV; '': what the file shows.
  """

  document: str = 'line'
  encoding: str = 'utf-8'
  delimiter: str = ''


def read(path: str, encoding: str = 'utf-8') -> Iterator[tuple[str, str]]:
  """Yields ('file:line', the line without its end).

  Raises:
    InputError: a line is too long or can't be decoded; the message names the
      file, the byte, and the line unless the encoding hides line ends.
  """
  for number, line in enumerate(Lines(path, encoding), 1):
    yield f'{path}:{number}', line.removesuffix('\n').removesuffix('\r')


def whole(path: str, encoding: str = 'utf-8') -> str:
  """Returns the text of a file, without its byte order mark.

  Raises:
    InputError: it can't be decoded; the message names file and byte.
  """
  with open(path, 'rb') as file:
    content = file.read()
  check_kind(content[:SEEN], path, encoding)
  return decode(content, encoding, path).removeprefix(MARK)


class Lines:
  """Iterates over the lines of a file, with their ends, and counts bytes.

  Attributes:
    bytes: how many bytes were read.
  """

  def __init__(
    self,
    path: str,
    encoding: str = 'utf-8',
    longest: int = LONGEST,
    old_ends: bool = False,
  ) -> None:
    """Opens nothing yet.

    Args:
      path: of the file.
      encoding: of its text.
      longest: bytes of a line.
      old_ends: whether a carriage return by itself ends a line, too.
    """
    self._path = path
    self._encoding = encoding
    self._longest = longest
    self._old_ends = old_ends
    self.bytes = 0

  def __iter__(self) -> Iterator[str]:
    if not _ends_lines_as_ascii(self._encoding):
      text = whole(self._path, self._encoding)
      yield from io.StringIO(text, newline='' if self._old_ends else '\n')
      return
    for number, line in enumerate(self._split(), 1):
      self.bytes += len(line)
      try:
        text = line.decode(self._encoding)
      except (UnicodeError, LookupError):
        text = decode(line, self._encoding, f'{self._path}:{number}')
      yield text if number > 1 else text.removeprefix(MARK)

  def _split(self):
    """Yields the lines as bytes."""
    with open(self._path, 'rb') as file:
      check_kind(file.read(SEEN), self._path, self._encoding)
      file.seek(0)
      for line in bounded(file, self._path, self._longest):
        if self._old_ends and line.find(b'\r', 0, -2) >= 0:
          yield from line.splitlines(True)
        else:
          yield line


def match(path: str, key: str) -> list[str]:
  """Lists the files that a path or a glob matches, sorted.

  Raises:
    InputError: no file matches, or one is empty.
  """
  if not path:
    raise errors.InputError(f'{key}={path!r}: give a file or a glob')
  files = _without_links(files_lib.matching(path))
  if not files:
    held_out = key in ('data.validation_path', 'data.test_path')
    raise errors.InputError(
      f'{key}={path!r}: no such file (searched in {os.getcwd()}): give a file '
      "or a glob such as 'folder/**/*.txt'"
      + (f", or {key}='' to split off data.path" if held_out else '')
    )
  for file in files:
    if not os.path.getsize(file):
      raise errors.InputError(
        f'{key}={path!r}: {file} is empty: fill it or leave it out'
      )
  return files


def _without_links(matches):
  """Returns each file once, sorted, though links may lead to it again."""
  by_target: dict[str, str] = {}
  for path in sorted(map(os.path.abspath, matches), key=lambda x: (len(x), x)):
    by_target.setdefault(os.path.realpath(path), path)
  return sorted(by_target.values())


def check(file: str, key: str) -> None:
  """Raises InputError, with the byte offset, unless the file is UTF-8."""
  decoder, read = codecs.getincrementaldecoder('utf-8')(), 0
  with open(file, 'rb') as opened:
    check_kind(opened.read(SEEN), f'{key}: {file}')
    opened.seek(0)
    while True:
      content = opened.read(BLOCK)
      waiting = len(decoder.getstate()[0])  # of a character that was cut
      try:
        decoder.decode(content, not content)
      except UnicodeDecodeError as error:
        raise errors.InputError(
          f'{key}: {file} is not UTF-8 at byte offset '
          f'{read - waiting + error.start}: convert it or leave it out'
        ) from None
      if not content:
        return
      read += len(content)


def bounded(
  file: BinaryIO, name: str, longest: int = LONGEST, before: int = 0
) -> Iterator[bytes]:
  """Yields the lines of a file, with their ends.

  Args:
    file: where reading begins at its place.
    name: of the file, for messages.
    longest: bytes of a line.
    before: lines that precede that place, for messages.

  Raises:
    InputError: a line is longer; no more of it is read.
  """
  number = before + 1
  while line := file.readline(longest + 1):
    if len(line) > longest:
      raise errors.InputError(
        f'{name}:{number}: a line has {longest:,} bytes at most: shorten it, '
        'or end lines with a line feed'
      )
    yield line
    number += 1


def located(
  file: BinaryIO, name: str, longest: int = LONGEST
) -> Iterator[tuple[str, bytes]]:
  """Yields (place, line with its end), without a byte order mark.

  Args:
    file: at its begin.
    name: of the file, for messages.
    longest: bytes of a line.

  Raises:
    InputError: the file holds no text, or a line is longer.
  """
  for number, line in enumerate(bounded(file, name, longest), 1):
    start = 0
    if number == 1:
      check_kind(line[:SEEN], name)
      start = mark_size(line)
    yield f'{name}:{number}', line[start:]


def mark_size(first: bytes) -> int:
  """Returns the bytes of the mark that a file begins with, 0 without one.

  Args:
    first: the beginning of the file.
  """
  return len(MARK_BYTES) if first.startswith(MARK_BYTES) else 0


def check_kind(first: bytes, path: str, encoding: str = 'utf-8') -> None:
  """Checks that a file begins as text does.

  Raises:
    InputError: it is something else; says what and how it becomes text.
  """
  for begin, words in KINDS:
    if first.startswith(begin) and (
      words != UTF_16 or encoding.lower() in ('utf-8', 'utf8')
    ):
      raise errors.InputError(f'{path} is {words}')


def decode(content: bytes, encoding: str, where: str) -> str:
  """Returns the text of some bytes.

  Raises:
    InputError: they aren't text in that encoding, or it doesn't exist.
  """
  try:
    return content.decode(encoding)
  except UnicodeError as error:
    place = f'byte {getattr(error, "start", 0)}'
    raise errors.InputError(
      f'{where}: {place} is not {encoding}: convert the file, or name its '
      "encoding in launch.prepare, such as --encoding='cp1252'"
    ) from None
  except LookupError:
    raise errors.InputError(
      f"--encoding={encoding!r}: no such encoding: 'utf-8' is the usual one"
    ) from None


def _ends_lines_as_ascii(encoding):
  """Whether a byte 10 is always the end of a line, unlike in UTF-16."""
  try:
    return '\n'.encode(encoding) == b'\n'
  except (LookupError, UnicodeError):
    return True  # `decode` raises the error
