"""JSONL files: each line is an object; a document is its field `data.field`.

A list of texts becomes a document with one line per text. If `data.classes`
names classes, `data.label` is read too.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Sequence

import numpy as np

from rnn_jax import errors
from rnn_jax import files
from rnn_jax.data.preparation import classes
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.text import documents


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""


class Rows:
  """The Reader of rows.

  Args:
    files: the files.
    field: the key of the text.
    locations: of each row: number of the file, line, offset and length in
      bytes.
    sizes: bytes of each text.
    labels: the class of each row, or None.
    difficulties: the difficulty of each row, or None.
  """

  def __init__(
    self,
    files: Sequence[str],
    field: str,
    locations: Sequence[tuple[int, int, int, int]],
    sizes: Sequence[int],
    labels: Sequence[int] | None,
    difficulties: Sequence[float] | None,
  ) -> None:
    self.files = tuple(files)
    self.field = field
    self.locations = np.array(locations, np.int64).reshape(-1, 4)
    self.sizes = np.array(sizes, np.int64)
    self.labels = None if labels is None else np.array(labels, np.int64)
    self.difficulties = None if difficulties is None else np.array(difficulties)

  @property
  def names(self) -> tuple[str, ...]:
    folder = os.path.commonpath([os.path.dirname(f) for f in self.files])
    files = [os.path.relpath(file, folder) for file in self.files]
    return tuple(f'{files[f]}:{line}' for f, line in self.locations[:, :2])

  def read(self, unit: int, start: int, stop: int) -> bytes:
    index, _, offset, length = self.locations[unit]
    with open(self.files[index], 'rb') as file:
      file.seek(offset)
      row = file.read(length)
    return _text(files.from_json(row)[self.field]).encode()[start:stop]


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split; rows with an empty text are skipped.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, or a line isn't
      an object with a text in `data.field` and a class in `data.label`.
  """
  return base.load_files(data, functools.partial(open_rows, data=data))


def open_rows(path: str, key: str, data: Config) -> Rows:
  """Returns the reader of all rows of the files that `path` matches.

  Raises:
    InputError: as `load`; `key` is the config key that a message names.
  """
  files = text.match(path, key)
  locations: list[tuple[int, int, int, int]] = []
  sizes: list[int] = []
  labels: list[int] = []
  difficulties: list[float] = []
  for index, file in enumerate(files):
    text.check_text(file, key)
    offset = 0
    with open(file, 'rb') as lines:
      for number, line in enumerate(lines, 1):
        if line.strip():
          where = f'{file}:{number}'
          row = _parse(line, where)
          sizes.append(_text_size(row, data.field, where))
          locations.append((index, number, offset, len(line)))
          if data.difficulty:
            difficulties.append(_difficulty(row, data, where))
          if data.classes:
            labels.append(_label(row, data, where))
            _check_not_empty(sizes[-1], data.field, where)
        offset += len(line)
  if not any(sizes):
    raise errors.InputError(f'{key}={path!r}: no row has any text')
  columns = labels or None, difficulties or None
  return Rows(files, data.field, locations, sizes, *columns)


def _text(value):
  return value if isinstance(value, str) else documents.join_lines(value)


def _parse(line, where):
  """Returns a row, or raises InputError."""
  try:
    row = files.from_json(line)
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
          f'{type(turn).__name__}, not text: fix it'
        )
      _check_not_empty(len(turn.strip()), f'{field}[{number}]', where)
  elif not isinstance(value, str):
    raise errors.InputError(
      f'{where}: data.field={field!r} is {type(value).__name__}: '
      'choose a field with text'
    )
  try:
    return len(_text(value).encode())
  except UnicodeEncodeError:
    raise errors.InputError(
      f'{where}: data.field={field!r} has half a surrogate pair: fix it'
    ) from None


def _check_not_empty(size, column, where):
  if not size:
    raise errors.InputError(
      f'{where}: {column!r} is empty: fill it, or remove the row'
    )


def _difficulty(row, data, where):
  """Returns a row's difficulty."""
  value = row.get(data.difficulty)
  if type(value) not in (int, float) or not math.isfinite(value):
    raise errors.InputError(
      f'{where}: data.difficulty={data.difficulty!r} is {value!r}: give a '
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
    f"{where}: data.label={data.label!r} is {value!r}, which isn't in "
    f'data.classes={data.classes!r}, nor one of their numbers from 0'
  )
