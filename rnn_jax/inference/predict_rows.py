"""Predictions for the rows of a file, as JSON lines while they are made.

A line has `id`, the columns of the input, `label` and `probabilities` (or
`written`, of a model that writes its answer), or only `labels`, of a model that
labels each character. A given column of one of these names is kept as
input_NAME. The id is the value in the column that `id` names, else in an
existing column 'id', else the number of the row, from 0. Rows of an image model
are files; their id is the path within the folder.
"""

import dataclasses
import datetime
import decimal
import glob
import itertools
import os
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from rnn_jax import activity
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import files
from rnn_jax.data import input_rows
from rnn_jax.data.preparation.formats import images as images_format
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import predict

CHUNK = 512  # rows that are read before their predictions are written
ID = 'id'
TEXT = 'text'  # the column of plain lines
WRITTEN = (ID, 'label', 'probabilities', 'written', 'labels')
RENAMED = 'input_'  # before a given column of such a name


@dataclasses.dataclass(frozen=True)
class Request:
  """What to predict.

  Attributes:
    input: a file, '-', or for image models files, a glob or a folder.
    format: of the file; '' shows in its name.
    text: the column of the text; '': the one that the run was trained on.
    id: the column of the id; '': 'id' if it exists, else the row's number.
  """

  input: str
  format: str = ''
  text: str = ''
  id: str = ''


@dataclasses.dataclass(frozen=True)
class Row:
  """A row to predict.

  Attributes:
    content: a text, or the pixels of an image.
    columns: those of its line before the prediction, the id first.
  """

  content: predict.Input
  columns: dict[str, Any]


def open_rows(request: Request, config: config_lib.Config) -> Iterator[Row]:
  """Returns the rows of a request, of which the first is read and checked.

  Args:
    request: where they are.
    config: of the run that predicts them.

  Raises:
    InputError: the run predicts no class and no labels, there is no such input,
      or its first row can't be read. Later rows are read as they are taken, and
      a malformed one raises then.
  """
  predict.check_predicts(config)
  rows = (
    _images(request, config)
    if config.task.reads_images
    else _texts(request, config)
  )
  first = next(rows, None)
  if first is None:
    errors.refuse('--input', request.input, 'it has no row: fill it')
  return itertools.chain([first], rows)


def write_rows(
  model: model_lib.Model, rows: Iterator[Row], write: Callable[[str], None]
) -> int:
  """Predicts rows and writes a JSON line for each; returns their number.

  Args:
    model: a classifier, or a model of labels.
    rows: of `open_rows`.
    write: called with the lines of up to CHUNK rows at a time.

  Raises:
    InputError: a row is malformed; the lines of those before it are written.
  """
  count = 0
  with activity.doing('predicting', unit='rows') as done:
    for chunk, error in _chunks(rows):
      if chunk:
        predictions = model.predict([row.content for row in chunk])
        pairs = zip(chunk, predictions, strict=True)
        write(''.join(_line(row, prediction) for row, prediction in pairs))
        count += len(chunk)
        done(len(chunk))
      if error is not None:
        raise error
  return count


def _chunks(rows):
  """Yields (up to CHUNK rows, the error that ends them or None)."""
  chunk: list[Row] = []
  try:
    for row in rows:
      chunk.append(row)
      if len(chunk) == CHUNK:
        yield chunk, None
        chunk = []
  except errors.InputError as error:
    yield chunk, error
    return
  yield chunk, None


def _texts(request, config):
  """Yields the rows of a table or of lines."""
  source = input_rows.Source(request.input, request.format)
  source.check()
  trained = getattr(config.data, 'field', TEXT)
  for number, example in enumerate(source.rows()):
    # Lines of plain text have this column only.
    column = trained if trained in example.values else TEXT
    text = input_rows.text_of(example, request.text or column, '--text')
    yield Row(text, _columns(example, request.id, number))


def _images(request, config):
  """Yields a row for each image file."""
  for name, value in (
    ('--text', request.text),
    ('--id', request.id),
    ('--format', request.format),
  ):
    if value:
      errors.refuse(name, value, 'images are files, no table: leave it out')
  for path, name in _image_files(request.input):
    yield Row(model_lib.read_image(path, config.data.image), {ID: name})


def _image_files(given):
  """Yields (path, name) of a file, of a glob's or of a folder's images."""
  if os.path.isdir(given):
    names = sorted(
      os.path.relpath(os.path.join(folder, name), given).replace(os.sep, '/')
      for folder, _, found in os.walk(given)
      for name in found
      if name.lower().endswith(images_format.READABLE)
    )
    if not names:
      errors.refuse(
        '--input',
        given,
        f'the folder has no image ({", ".join(images_format.READABLE)})',
      )
    yield from ((os.path.join(given, name), name) for name in names)
    return
  exists = os.path.exists(given)
  paths = [given] if exists else sorted(glob.glob(given, recursive=True))
  if not paths:
    input_rows.check_exists(given, '--input')
  yield from ((path, os.path.basename(path)) for path in paths)


def _columns(example, id_column, number):
  """Returns the columns of a row's line before the prediction."""
  where, values, _ = example
  source = id_column or ID
  if id_column or ID in values:
    number = input_rows.value_of(example, source, '--id')
  columns = {ID: _plain(number, where)}
  for name, value in values.items():
    if name == source == ID:
      continue
    kept = f'{RENAMED}{name}' if name in WRITTEN else name
    if kept != name and kept in values:
      raise errors.InputError(
        f'{where}: {name!r} would be kept as {kept!r}, which is a column too: '
        'rename one of them'
      )
    columns[kept] = _plain(value, where)
  return columns


def _plain(value, where):
  """Returns a value as JSON has it; Parquet has others."""
  if value is None or isinstance(value, (str, int, float)):
    return value
  if isinstance(value, dict):
    return {str(key): _plain(x, where) for key, x in value.items()}
  if type(value) is list:
    return [_plain(x, where) for x in value]
  if isinstance(value, (datetime.date, datetime.time)):
    return value.isoformat()
  if isinstance(value, decimal.Decimal):
    return str(value)
  raise errors.InputError(
    f'{where}: JSON has no {type(value).__name__}: leave out the columns that '
    'have some'
  )


def _line(row, prediction):
  answer: dict[str, Any] = {'label': prediction.label}
  if prediction.labels is not None:
    answer = {'labels': prediction.labels}
  elif prediction.written is None:
    answer['probabilities'] = prediction.probabilities
  else:
    answer['written'] = prediction.written
  return files.to_json(row.columns | answer, ensure_ascii=False) + '\n'
