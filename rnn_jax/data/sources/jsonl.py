"""JSONL files: each line an object, a document its field `data.field`."""

import functools
import json
import os

import numpy as np

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import documents
from rnn_jax.data.sources import text


class Rows:
  """The Reader of rows; a column of `places` is file, line, offset, length."""

  def __init__(self, files: list[str], field: str, places, sizes):
    self.files = tuple(files)
    self.field = field
    self.places = np.array(places, np.int64).reshape(-1, 4)
    self.sizes = np.array(sizes, np.int64)

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
    return json.loads(row)[self.field].encode()[start:stop]


def load(data: config.Data) -> dict[str, documents.Documents]:
  """Returns the documents of each split. A row with an empty text is none.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, or a line is no
      object with a text in `data.field`.
  """
  return documents.assemble(
    data, functools.partial(open_rows, field=data.field)
  )


def open_rows(path: str, key: str, field: str) -> Rows:
  """Returns the reader of all rows of the files that `path` matches."""
  files = text.match(path, key)
  places, sizes = [], []
  for index, file in enumerate(files):
    text.check_text(file, key)
    offset = 0
    with open(file, 'rb') as lines:
      for number, line in enumerate(lines, 1):
        if line.strip():
          sizes.append(_text_size(line, field, f'{file}:{number}'))
          places.append((index, number, offset, len(line)))
        offset += len(line)
  if not any(sizes):
    raise errors.InputError(f'{key}={path!r}: no row holds any text')
  return Rows(files, field, places, sizes)


def _text_size(line, field, where):
  """Returns the bytes of a row's text, or raises InputError."""
  try:
    row = json.loads(line)
  except ValueError as error:
    raise errors.InputError(f'{where}: not JSON: {error}') from None
  if not isinstance(row, dict):
    raise errors.InputError(
      f'{where}: a row must be an object, not {type(row).__name__}'
    )
  if field not in row:
    raise errors.InputError(
      f'{where}: no field data.field={field!r}: choose one of {[*row]}'
    )
  if not isinstance(row[field], str):
    raise errors.InputError(
      f'{where}: data.field={field!r} holds {type(row[field]).__name__}: '
      'choose a field that holds text'
    )
  try:
    return len(row[field].encode())
  except UnicodeEncodeError:
    raise errors.InputError(
      f'{where}: data.field={field!r} holds half a surrogate pair: mend it'
    ) from None
