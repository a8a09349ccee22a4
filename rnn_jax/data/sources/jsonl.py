"""JSONL files: each line an object, a document its field `data.field`.

A field that holds a list of texts gives a document with a line for each. Where
`data.classes` names classes, `data.label` is read too.
"""

import dataclasses
import functools
import json
import math
import os

import numpy as np

from rnn_jax import errors
from rnn_jax.data.preparation import classes
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.text import documents


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""


class Rows:
  """The Reader of rows; a column of `places` is file, line, offset, length."""

  def __init__(
    self, files: list[str], field: str, places, sizes, labels, difficulties
  ):
    self.files = tuple(files)
    self.field = field
    self.places = np.array(places, np.int64).reshape(-1, 4)
    self.sizes = np.array(sizes, np.int64)
    self.labels = None if labels is None else np.array(labels, np.int64)
    self.difficulties = None if difficulties is None else np.array(difficulties)

  @property
  def names(self) -> tuple[str, ...]:
    folder = os.path.commonpath([os.path.dirname(f) for f in self.files])
    files = [os.path.relpath(file, folder) for file in self.files]
    return tuple(f'{files[f]}:{line}' for f, line in self.places[:, :2])

  def read(self, unit: int, start: int, stop: int) -> bytes:
    index, _, offset, length = self.places[unit]
    with open(self.files[index], 'rb') as file:
      file.seek(offset)
      row = file.read(length)
    return _text(json.loads(row)[self.field]).encode()[start:stop]


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split. A row with an empty text is none.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, a line is no
      object with a text in `data.field`, or with a class in `data.label`.
  """
  return documents.assemble(data, functools.partial(open_rows, data=data))


def open_rows(path: str, key: str, data: Config) -> Rows:
  """Returns the reader of all rows of the files that `path` matches."""
  files = text.match(path, key)
  places, sizes, labels, difficulties = [], [], [], []
  for index, file in enumerate(files):
    text.check_text(file, key)
    offset = 0
    with open(file, 'rb') as lines:
      for number, line in enumerate(lines, 1):
        if line.strip():
          where = f'{file}:{number}'
          row = _parse(line, where)
          sizes.append(_text_size(row, data.field, where))
          places.append((index, number, offset, len(line)))
          if data.difficulty:
            difficulties.append(_difficulty(row, data, where))
          if data.classes:
            labels.append(_label(row, data, where))
            _check_not_empty(sizes[-1], data.field, where)
        offset += len(line)
  if not any(sizes):
    raise errors.InputError(f'{key}={path!r}: no row holds any text')
  columns = labels or None, difficulties or None
  return Rows(files, data.field, places, sizes, *columns)


def _text(value):
  return value if isinstance(value, str) else documents.join_lines(value)


def _parse(line, where):
  """Returns a row, or raises InputError."""
  try:
    row = json.loads(line)
  except ValueError as error:
    raise errors.InputError(f'{where}: not JSON: {error}') from None
  if not isinstance(row, dict):
    raise errors.InputError(
      f'{where}: a row must be an object, not {type(row).__name__}'
    )
  return row


def _text_size(row, field, where):
  """Returns the bytes of a row's text, or raises InputError."""
  if field not in row:
    raise errors.InputError(
      f'{where}: no field data.field={field!r}: choose one of {[*row]}'
    )
  value = row[field]
  if isinstance(value, list):
    for number, turn in enumerate(value):
      if not isinstance(turn, str):
        raise errors.InputError(
          f'{where}: data.field={field!r}, item {number} is '
          f'{type(turn).__name__}, no text: mend it'
        )
      _check_not_empty(len(turn.strip()), f'{field}[{number}]', where)
  elif not isinstance(value, str):
    raise errors.InputError(
      f'{where}: data.field={field!r} holds {type(value).__name__}: '
      'choose a field that holds text'
    )
  try:
    return len(_text(value).encode())
  except UnicodeEncodeError:
    raise errors.InputError(
      f'{where}: data.field={field!r} holds half a surrogate pair: mend it'
    ) from None


def _check_not_empty(size, column, where):
  if not size:
    raise errors.InputError(
      f'{where}: {column!r} is empty: fill it, or take the row out'
    )


def _difficulty(row, data, where):
  """Returns the number of a row's difficulty."""
  value = row.get(data.difficulty)
  if type(value) not in (int, float) or not math.isfinite(value):
    raise errors.InputError(
      f'{where}: data.difficulty={data.difficulty!r} holds {value!r}: give a '
      'number'
    )
  return float(value)


def _label(row, data, where):
  """Returns the number of a row's class, given by number or by name."""
  value = row.get(data.label)
  number = classes.number(value, data.classes)
  if number is not None:
    return number
  raise errors.InputError(
    f'{where}: data.label={data.label!r} holds {value!r}, which is none of '
    f'data.classes={data.classes!r}, nor one of their numbers from 0'
  )
