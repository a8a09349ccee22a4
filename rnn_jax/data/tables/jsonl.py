"""JSON Lines: the object in a line."""

from typing import Any

from rnn_jax import errors
from rnn_jax.data.tables import lines
from rnn_jax.system import files

OLD_ENDS = 'its lines end in carriage returns only: end them with line feeds'


def row(line: str, where: str) -> dict[str, Any]:
  """Returns the object in a line.

  Args:
    line: without a byte order mark.
    where: its place, for messages.

  Raises:
    InputError: it isn't one; says what it is.
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
  return value


def row_of_bytes(content: bytes, where: str) -> dict[str, Any]:
  """Returns the object in a line of a file.

  Raises:
    InputError: it isn't UTF-8, or as `row`.
  """
  return row(lines.decode(content, 'utf-8', where), where)
