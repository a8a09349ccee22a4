"""Plain text: each line or each file is an example."""

from collections.abc import Iterable
from collections.abc import Iterator

from rnn_jax.data.preparation import examples
from rnn_jax.data.tables import lines

SUFFIXES = ('.txt', '.text', '.md')


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example for each line that is not blank, or one for the file.

  Raises:
    InputError: the file cannot be decoded.
  """
  if options.document == 'file':
    text = lines.whole(path, options.encoding)
    yield examples.Example(path, {'text': text})
    return
  yield from parse(lines.read(path, options.encoding))


def parse(given: Iterable[tuple[str, str]]) -> Iterator[examples.Example]:
  """Yields an example for each (location, line) that is not blank."""
  for where, line in given:
    if line.strip():
      yield examples.Example(where, {'text': line})
