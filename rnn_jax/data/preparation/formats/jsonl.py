"""JSON Lines: each line is an object."""

import json
from collections.abc import Iterable
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.tables import jsonl
from rnn_jax.data.tables import lines

SUFFIXES = ('.jsonl', '.ndjson')


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example for each line that is not blank.

  Raises:
    InputError: a line cannot be decoded, isn't an object, or has half a
      character.
  """
  yield from parse(lines.read(path, options.encoding))


def parse(given: Iterable[tuple[str, str]]) -> Iterator[examples.Example]:
  """Yields an example for each (location, line) that is not blank.

  Raises:
    InputError: a line isn't an object, or has half a character.
  """
  for where, line in given:
    if not line.strip():
      continue
    row = jsonl.row(line, where)
    if '\\u' in line:
      _check_surrogates(row, where)
    yield examples.Example(where, row)


def _check_surrogates(row, where):
  """Refuses half a character, which JSON can encode but UTF-8 can't."""
  for column, value in row.items():
    try:
      json.dumps([column, value], ensure_ascii=False).encode()
    except UnicodeEncodeError:
      raise errors.InputError(
        f'{where}: {ascii(column)} has half a surrogate pair: fix it'
      ) from None
