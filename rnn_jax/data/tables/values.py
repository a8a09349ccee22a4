"""What a row has in its columns: a text, a class.

    text_of({'messages': [{'role': 'user', 'content': 'hi'}]}, 'messages', ...)

A list of texts becomes a line for each, and a list of messages what
data/text/turns.py dumps. The texts of several columns, joined by commas, become
a list of JSON. Training, prediction, evaluation and scores ask here.
"""

import json
from collections.abc import Mapping
from typing import Any

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.preparation import classes as classes_lib
from rnn_jax.data.text import documents
from rnn_jax.data.text import turns

SHOWN = 10  # columns that a message names
MISSING = (None, '')  # what a row without a label has

Row = Mapping[str, Any]


def text_of(row: Row, column: str, where: str, flag: str = '') -> str:
  """Returns the document of a row.

  Args:
    row: {column: value}.
    column: its name, or names joined by columns.JOIN.
    where: the place of the row, for messages.
    flag: which names another column; '': none does.

  Raises:
    InputError: there is no such column, or it has no text.
  """
  if column not in row and columns.JOIN in column:
    names = column.split(columns.JOIN)
    listed = [value_of(row, name, where, flag) for name in names]
    for name, value in zip(names, listed, strict=True):
      if not isinstance(value, str):
        raise _not_text(value, name, where, '')
    return json.dumps(listed, ensure_ascii=False)
  value = value_of(row, column, where, flag)
  if is_messages(value):
    return turns.dump([*_messages(value, column, where)])
  if isinstance(value, list):
    for number, item in enumerate(value):
      if not isinstance(item, str):
        raise _not_text(item, f'{column}[{number}]', where, flag)
    return documents.join_lines(value)
  if not isinstance(value, str):
    raise _not_text(value, column, where, flag)
  return value


def value_of(row: Row, column: str, where: str, flag: str = '') -> Any:
  """Returns the value in a column; the arguments are those of `text_of`.

  Raises:
    InputError: there is no such column; the message lists those that exist.
  """
  if column not in row:
    known = [*row][:SHOWN]
    remedy = (
      f'name one of {known} in {flag}' if flag else f'rename one of {known}'
    )
    raise errors.InputError(f'{where}: no column {column!r}: {remedy}')
  return row[column]


def label_of(
  row: Row, column: str, classes: tuple[str, ...], where: str
) -> int | None:
  """Returns the number of a row's class, by its name or number.

  Returns:
    None if the row has no label.

  Raises:
    InputError: there is no such column, or it has another value.
  """
  value = value_of(row, column, where)
  if value in MISSING:
    return None
  number = classes_lib.number(value, classes)
  if number is None:
    raise errors.InputError(
      f"{where}: {column}={value!r} isn't one of the classes {[*classes]}, nor "
      'one of their numbers from 0: correct it'
    )
  return number


def is_messages(value: Any) -> bool:
  """Returns whether a value is a list of messages, each with a role."""
  return (
    isinstance(value, list)
    and bool(value)
    and all(isinstance(item, dict) and 'role' in item for item in value)
  )


def _messages(value, column, where):
  """Yields the Messages of a list, each of which must have texts."""
  for number, item in enumerate(value):
    role, content = item['role'], item.get('content')
    if not isinstance(content, str):
      raise errors.InputError(
        f'{where}: {column!r}, item {number} is {type(content).__name__}, not '
        'text: fix it'
      )
    if not isinstance(role, str):
      raise errors.InputError(
        f'{where}: {column!r}, item {number} has role={role!r}: give a text, '
        'such as "user"'
      )
    yield turns.Message(role, content)


def _not_text(value, name, where, flag):
  other = f', or name another column in {flag}' if flag else ''
  return errors.InputError(
    f'{where}: {name!r} is {type(value).__name__}, not text: fix it{other}'
  )
