"""Decoded text files, whole or by line, with the location of each line."""

from collections.abc import Iterator

from rnn_jax import errors

MARK = '\ufeff'  # the byte order mark at the start of some files


def read(path: str, encoding: str) -> Iterator[tuple[str, str]]:
  """Yields ('file:line', the line without its end).

  Raises:
    InputError: a line cannot be decoded; the message names the file, the byte,
      and the line unless the encoding hides line ends.
  """
  if not _ends_lines_as_ascii(encoding):
    for number, text in enumerate(whole(path, encoding).split('\n'), 1):
      yield f'{path}:{number}', text.removesuffix('\r')
    return
  with open(path, 'rb') as file:
    for number, line in enumerate(file, 1):
      where = f'{path}:{number}'
      text = decode(line.removesuffix(b'\n'), encoding, where)
      if number == 1:
        text = text.removeprefix(MARK)
      yield where, text.removesuffix('\r')


def whole(path: str, encoding: str) -> str:
  """Returns the text of a file, without its byte order mark.

  Raises:
    InputError: it cannot be decoded; the message names file and byte.
  """
  with open(path, 'rb') as file:
    return decode(file.read(), encoding, path).removeprefix(MARK)


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
