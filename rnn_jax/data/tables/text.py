"""Plain text as rows: each line or each file is one, in the column 'text'."""

from collections.abc import Iterable
from collections.abc import Iterator

from rnn_jax.data import columns
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values

SUFFIXES = ('.txt', '.text', '.md')


def read(path: str, options: lines.Options) -> Iterator[values.Row]:
  """Yields a row for each line that is not blank, or one for the file.

  Raises:
    InputError: the file cannot be decoded.
  """
  if options.document == 'file':
    text = lines.whole(path, options.encoding)
    yield values.Row(path, {columns.TEXT: text})
    return
  yield from parse(lines.read(path, options.encoding))


def parse(given: Iterable[tuple[str, str]]) -> Iterator[values.Row]:
  """Yields a row for each (place, line) that is not blank."""
  for where, line in given:
    if line.strip():
      yield values.Row(where, {columns.TEXT: line})
