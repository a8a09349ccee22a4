"""The lines of a text file, decoded, with their places."""

from collections.abc import Iterator

from rnn_jax import errors


def read(path: str, encoding: str) -> Iterator[tuple[str, str]]:
  """Yields ('file:line', the line without its end).

  Raises:
    InputError: a line cannot be decoded; the message names file, line and byte.
  """
  with open(path, 'rb') as file:
    for number, line in enumerate(file, 1):
      where = f'{path}:{number}'
      text = line.removesuffix(b'\n').removesuffix(b'\r')
      yield where, decode(text, encoding, where)


def decode(content: bytes, encoding: str, where: str) -> str:
  """Returns the text of some bytes.

  Raises:
    InputError: it is not text in that encoding, or there is no such encoding.
  """
  try:
    return content.decode(encoding)
  except UnicodeDecodeError as error:
    raise errors.InputError(
      f'{where}: byte {error.start} is not {encoding}: convert the file, or '
      "name its encoding, such as --encoding='cp1252'"
    ) from None
  except LookupError:
    raise errors.InputError(
      f"--encoding={encoding!r}: no such encoding: 'utf-8' is the usual one"
    ) from None
