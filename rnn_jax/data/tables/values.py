"""A row: its place, and what is in its columns: a text, a class, a number.

    text_of({'messages': [{'role': 'user', 'content': 'hi'}]}, 'messages', ...)

A list of texts becomes a line for each, and a list of messages what
data/text/turns.py dumps. The texts of several columns, joined by commas, become
a list of JSON. Training, preparation, prediction, evaluation and scores ask
here, so that a row that one of them refuses is refused by all.
"""

import contextlib
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
from absl import logging

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.text import documents
from rnn_jax.data.text import turns

SHOWN = 10  # columns that a message names
MISSING = (None, '')  # what a row without a label has
UNLABELLED = -1  # the class of such a row, as TFDS has it
ERROR, SKIP = 'error', 'skip'  # what to do about such a row
INTEGER = re.compile(r'-?(0|[1-9][0-9]{0,17})')  # fits 64 bits
FLOAT = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE]-[0-9]+)')

Values = Mapping[str, Any]  # {column: value}


class Image(NamedTuple):
  """An encoded image, PNG or JPEG."""

  content: bytes


class Row(NamedTuple):
  """A row of a file.

  Attributes:
    where: its place, such as 'file:line', for messages.
    values: column to str, int, float, bool, Image, or a list of one of them;
      None: the file hides it.
    split: the split that the file assigns it to, or ''.
  """

  where: str
  values: dict[str, Any]
  split: str = ''


class Located(NamedTuple):
  """A row that is read again: its line, its offset and its length in bytes."""

  line: int
  offset: int
  length: int
  values: dict[str, Any]


def text_of(row: Values, column: str, where: str, flag: str = '') -> str:
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


def filled_text(
  row: Values, column: str, where: str, flag: str, labelled: bool
) -> str:
  """Returns the document of a row to train on; the arguments of `text_of`.

  Args:
    labelled: whether the row has a class, and so must have a text.

  Raises:
    InputError: as `text_of`; or an item of a list, or one of several columns,
      is empty.
  """
  text = text_of(row, column, where, flag)
  names = [column] if column in row else column.split(columns.JOIN)
  for name in names:
    value = row[name]
    if labelled or len(names) > 1 or value and isinstance(value, list):
      check_filled(value, name, where)
  return text


def value_of(row: Values, column: str, where: str, flag: str = '') -> Any:
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


def class_of(
  label: Any,
  column: str,
  classes: tuple[str, ...],
  where: str,
  remedy: str = '',
) -> int:
  """Returns the number of the class that a label names; UNLABELLED: none.

  A label is the name of a class, or its number from 0 unless names are numbers
  themselves: among the classes ('1', '2', '3') a label 0 is invalid.

  Raises:
    InputError: it is neither.
  """
  if label in MISSING:
    return UNLABELLED
  number = None
  if type(label) in (str, int, bool):
    number = _numbers(classes).get(str(label))
  if number is None:
    raise errors.InputError(
      f"{where}: {column}={label!r} isn't one of the classes {[*classes]}, nor "
      f'one of their numbers from 0: correct it{remedy and ", "}{remedy}'
    )
  return number


@functools.lru_cache(maxsize=4)
def _numbers(classes):
  """Returns {label: number}; True and False are only names."""
  names = {name: n for n, name in enumerate(classes)}
  if any(map(str.isdecimal, classes)):
    return names
  return {str(n): n for n in range(len(classes))} | names


def is_unlabelled(split: str, labels: np.ndarray | None) -> bool:
  """Returns whether it's a test split whose classes are kept secret."""
  if split != 'test' or labels is None:
    return False
  return bool(np.all(labels == UNLABELLED))


def unlabelled(where: str, label: str) -> errors.InputError:
  """Returns the error about a row without a class in column `label`."""
  return errors.InputError(
    f'{where}: data.label={label!r} is missing: fill it, or leave out '
    f'such rows with data.missing_labels={SKIP!r}'
  )


def labelled(
  sizes: np.ndarray, labels: np.ndarray, name: str, column: str, missing: str
) -> np.ndarray:
  """Returns labels, after what is to be done about those that are missing.

  A test split may have none at all. Else rows without one are refused, or they
  become empty, so that they are no documents, and a warning counts them.

  Args:
    sizes: bytes of each row's text; changed.
    labels: the class of each row, UNLABELLED where there is none.
    name: of the rows, as 'reviews/test'.
    column: of the labels.
    missing: what to do, ERROR or SKIP.

  Raises:
    InputError: rows have no class.
  """
  lacks = labels == UNLABELLED
  if not lacks.any() or is_unlabelled(name.rpartition('/')[2], labels):
    return labels
  if missing != SKIP:
    raise unlabelled(f'{name}:{int(np.argmax(lacks))}', column)
  if lacks.all():
    errors.refuse(
      'data.label', column, f'no row of {name} has a class: name another'
    )
  sizes[lacks] = 0
  logging.warning(
    '%s: %s of %s rows have no %r and are left out',
    name,
    f'{lacks.sum():,}',
    f'{len(labels):,}',
    column,
  )
  return labels


def number_of(value: Any, column: str, where: str, key: str) -> float:
  """Returns the number in a column, which may be spelled as a text.

  Raises:
    InputError: it isn't a finite number; `key` names the column.
  """
  number = value
  if isinstance(value, str):
    with contextlib.suppress(ValueError):
      number = float(value)
  if type(number) not in (int, float) or not math.isfinite(number):
    raise errors.InputError(
      f'{where}: {key}={column!r} is {value!r}: give a number'
    )
  return float(number)


def is_number(value: str) -> bool:
  """Returns whether a value is spelled as a number; 007 is a name."""
  return bool(INTEGER.fullmatch(value) or FLOAT.fullmatch(value))


def empty_part(column: str, value: Any) -> str:
  """Returns what is empty: `column`, an item of it as 'x[2]', or '': nothing.

  A text of white space is empty, and so is a list without items.
  """
  if isinstance(value, str):
    return '' if value.strip() else column
  if not isinstance(value, list) or is_messages(value):
    return ''
  items = (empty_part(f'{column}[{n}]', item) for n, item in enumerate(value))
  return next(filter(None, items), '') if value else column


def check_filled(
  value: Any, column: str, where: str, remedy: str = 'or remove the row'
) -> None:
  """Raises InputError if something in a column is empty."""
  if part := empty_part(column, value):
    raise errors.InputError(f'{where}: {part!r} is empty: fill it, {remedy}')


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
