"""Predictions for the rows of a file, written while they are made.

A row has `id`, the columns of the input, `label` and `probabilities` (or
`written`, of a model that writes its answer), or only `labels`, of a model that
labels each character. A given column of one of these names is kept as
input_NAME, and one with what JSON lacks, as bytes, is left out. The id is the
value in the column that `id` names, else in an existing column 'id', else the
number of the row, from 0. Rows of an image model are files; their id is the
path within the folder.
"""

import dataclasses
import datetime
import decimal
import itertools
import os
from collections.abc import Iterator
from typing import Any

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.preparation.formats import images as images_format
from rnn_jax.data.series import labelled_tables
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import rows as rows_lib
from rnn_jax.data.tables import values
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import predict
from rnn_jax.inference import predict_output
from rnn_jax.system import activity
from rnn_jax.system import files
from rnn_jax.system import standard_input

CHUNK = 512  # rows that are read before their predictions are written
ID = 'id'
TEXT = 'text'  # the column of plain lines
WRITTEN = (ID, 'label', 'probabilities', 'written', 'labels')
RENAMED = 'input_'  # before a given column of such a name
UNWRITABLE = object()  # in place of what JSON lacks


@dataclasses.dataclass(frozen=True)
class Request:
  """What to predict.

  Attributes:
    input: a file, '-', or for image models files, a glob or a folder.
    format: of the file; '' shows in its name.
    text: the column of the text; '': the one that the run was trained on.
    id: the column of the id; '': 'id' if it exists, else the row's number.
    delimiter: between the values of CSV; '': its header shows it.
  """

  input: str
  format: str = ''
  text: str = ''
  id: str = ''
  delimiter: str = ''

  @property
  def source(self) -> rows_lib.Source:
    """Where rows of texts are."""
    return rows_lib.Source(self.input, self.format, self.delimiter)


@dataclasses.dataclass(frozen=True)
class Row:
  """A row to predict.

  Attributes:
    content: a text, the pixels of an image, or a series.
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
  read = _texts
  if config.task.reads_images:
    read = _images
  elif config.task.series_label:
    read = _series
  rows = read(request, config)
  first = next(rows, None)
  if first is None:
    errors.refuse('--input', request.input, 'it has no row: fill it')
  return itertools.chain([first], rows)


def delimiter(request: Request, config: config_lib.Config) -> str:
  """Returns what separates the values of a CSV input; ',' of another input.

  Predictions in CSV are separated alike, so that they open where it does.
  """
  source = request.source
  task = config.task
  of_texts = not (task.reads_images or task.series_label)
  of_texts = of_texts and source.path != standard_input.DASH
  if not of_texts or source.known_format() != 'csv':
    return ','
  return csv.dialect(source.path, given=source.delimiter).delimiter


def write_rows(
  model: model_lib.Model,
  rows: Iterator[Row],
  write: predict_output.Write,
  threshold: float = 0.0,
) -> int:
  """Predicts rows and writes what is predicted of each; returns their number.

  Args:
    model: a classifier, or a model of labels.
    rows: of `open_rows`.
    write: called with up to CHUNK rows at a time.
    threshold: the label is null where its probability is lower.

  Raises:
    InputError: a row is malformed; those before it are written.
  """
  count = 0
  with activity.doing('predicting', unit='rows') as done:
    for chunk, error in _chunks(rows):
      if chunk:
        contents = [row.content for row in chunk]
        predictions = model.predict(contents, threshold=threshold)
        pairs = zip(chunk, predictions, strict=True)
        write([each for pair in pairs for each in _written(*pair)])
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
  source = request.source
  source.check()
  trained = getattr(config.data, 'field', TEXT)
  left_out: set[str] = set()
  for number, example in enumerate(source.rows()):
    where, row, _ = example
    # Lines of plain text have this column only.
    column = trained if trained in row else TEXT
    text = values.text_of(row, request.text or column, where, '--text')
    yield Row(text, _columns(example, request.id, number, left_out))


def _series(request, config):
  """Yields a row for each series of a table."""
  _check_no_columns(request, 'series are read as in training')
  options = config.data.table_options()
  read = labelled_tables.read(request.input, '--input', options)
  for each in read.series:
    yield Row(each, {ID: each.name})


def _check_no_columns(request, why):
  for name, value in (
    ('--text', request.text),
    ('--id', request.id),
    ('--format', request.format),
    ('--delimiter', request.delimiter),
  ):
    if value:
      errors.refuse(name, value, f'{why}: leave it out')


def _images(request, config):
  """Yields a row for each image file."""
  _check_no_columns(request, 'images are files, no table')
  for path, name in _image_files(request.input):
    yield Row(model_lib.read_image(path, config.data.image), {ID: name})


def _image_files(given):
  """Yields (path, name) of a file, of a glob's or of a folder's images."""
  if not os.path.isdir(given):
    if not (paths := files.matching(given)):
      rows_lib.check_exists(given, '--input')
    yield from ((path, os.path.basename(path)) for path in paths)
    return
  suffixes = images_format.READABLE
  paths = [x for x in files.below(given) if x.lower().endswith(suffixes)]
  if not paths:
    errors.refuse(
      '--input', given, f'the folder has no image ({", ".join(suffixes)})'
    )
  for path in paths:
    yield path, os.path.relpath(path, given).replace(os.sep, '/')


def _columns(example, id_column, number, left_out):
  """Returns the columns of a row before the prediction.

  Args:
    example: the row.
    id_column: the column of the id, or ''.
    number: of the row.
    left_out: columns that a warning has named; changed.
  """
  where, row, _ = example
  source = id_column or ID
  identity = number
  if id_column or ID in row:
    identity = values.value_of(row, source, where, '--id')
  columns = {ID: _plain(identity)}
  if columns[ID] is UNWRITABLE:
    raise errors.InputError(
      f'{where}: {source!r} is {type(identity).__name__}, which JSON lacks: '
      'name another column in --id'
    )
  for name, value in row.items():
    if name == source == ID:
      continue
    kept = f'{RENAMED}{name}' if name in WRITTEN else name
    if kept != name and kept in row:
      raise errors.InputError(
        f'{where}: {name!r} would be kept as {kept!r}, which is a column too: '
        'rename one of them'
      )
    columns[kept] = plain = _plain(value)
    if plain is UNWRITABLE:
      del columns[kept]
      _warn_once(name, value, left_out)
  return columns


def _warn_once(name, value, left_out):
  if name not in left_out:
    left_out.add(name)
    logging.warning(
      'column %r is left out: JSON has no %s', name, type(value).__name__
    )


def _plain(value):
  """Returns a value as JSON has it, or UNWRITABLE; Parquet has others."""
  if value is None or isinstance(value, (str, int, float)):
    return value
  if isinstance(value, dict):
    listed = _plain([*value.values()])
    known = listed is not UNWRITABLE
    return dict(zip(map(str, value), listed, strict=True)) if known else listed
  if type(value) in (list, tuple):  # an Image is a tuple, too
    listed = [_plain(x) for x in value]
    return UNWRITABLE if UNWRITABLE in listed else listed
  if isinstance(value, (datetime.date, datetime.time)):
    return value.isoformat()
  is_spelled = isinstance(value, (decimal.Decimal, datetime.timedelta))
  return str(value) if is_spelled else UNWRITABLE


def _written(row, prediction):
  """Yields the rows that are written: one, or one for each step of a series."""
  if isinstance(prediction.labels, tuple):
    times = row.content.times or range(len(prediction.labels))
    for time, label in zip(times, prediction.labels, strict=True):
      yield row.columns | {'step': time, 'label': label}
    return
  answer: dict[str, Any] = {'label': prediction.label}
  if prediction.value is not None:
    answer = {'value': prediction.value}
  elif prediction.labels is not None:
    answer = {'labels': prediction.labels}
  elif prediction.written is None:
    answer['probabilities'] = prediction.probabilities
  else:
    answer['written'] = prediction.written
  yield row.columns | answer
