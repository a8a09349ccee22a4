"""Parquet, as public hubs publish datasets.

If a file names the classes of integer labels, as those of the Hugging Face hub
do, labels become names, and those that are hidden, -1 or null, become None.
Dates and times become texts in ISO 8601, and maps objects.
"""

import datetime
from collections.abc import Iterator
from typing import Any

from rnn_jax import errors
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values as values_lib
from rnn_jax.system import files

SUFFIXES = ('.parquet',)
ROWS = 1024  # that are Python's objects at a time
HIDDEN = (None, -1)  # labels of rows whose class is kept secret

Classes = dict[str, list[str]]


def read(path: str, options: lines.Options) -> Iterator[values_lib.Row]:
  """Yields the rows.

  Raises:
    InputError: the file isn't a complete Parquet file, or a value or a label is
      invalid.
  """
  del options
  import pyarrow
  from pyarrow import parquet

  try:
    file = parquet.ParquetFile(path)
    _check_names(file.schema_arrow.names, path)
    classes = _classes(file.schema_arrow)
    number = 0
    for batch in file.iter_batches(ROWS):
      columns = {
        name: _values(column, name, path, number)
        for name, column in zip(batch.schema.names, batch, strict=True)
      }
      for values in zip(*columns.values(), strict=True):
        number += 1
        row = dict(zip(columns, values, strict=True))
        where = f'{path}: row {number}'
        yield values_lib.Row(where, _named(row, classes, where))
  except (pyarrow.ArrowException, OSError) as error:
    reason = errors.first_line(error)
    raise errors.InputError(
      f'{path}: incomplete Parquet file: {reason}: copy it again'
    ) from None


def _check_names(names, path):
  """Raises InputError unless each column has a name of its own."""
  for name in names:
    if names.count(name) > 1:
      raise errors.InputError(
        f'{path}: two columns have the name {name!r}: rename one'
      )


def _classes(schema) -> Classes:
  """Returns {column: names of its classes} from a hub's metadata.

  Metadata that aren't a hub's say nothing.
  """
  try:
    info = files.from_json((schema.metadata or {}).get(b'huggingface', b'{}'))
  except ValueError:
    return {}
  for key in ('info', 'features'):
    info = info.get(key) if isinstance(info, dict) else None
  found: Classes = {}
  for column, feature in (info if isinstance(info, dict) else {}).items():
    if not isinstance(feature, dict) or feature.get('_type') != 'ClassLabel':
      continue
    given: Any = feature.get('names')
    if column in schema.names and _are_names(given):
      found[column] = given
  return found


def _are_names(given):
  return (
    isinstance(given, list)
    and all(isinstance(name, str) for name in given)
    and len(set(given)) == len(given) > 0
  )


def _values(column, name, path, before) -> list[Any]:
  """Returns the values of a column of a batch.

  Args:
    column: of Arrow.
    name: its name.
    path: of the file, for messages.
    before: rows of the file before the batch, for messages.
  """
  import pyarrow

  try:
    values = column.to_pylist()
  except UnicodeDecodeError:
    number = next(n for n, x in enumerate(column) if not _is_text(x))
    raise errors.InputError(
      f'{path}: row {before + number + 1}: {name!r} is not UTF-8: convert it, '
      'or leave the column out'
    ) from None
  except (ValueError, OverflowError):  # nanoseconds, years beyond 9999
    try:
      values = column.cast(pyarrow.string()).to_pylist()
    except pyarrow.ArrowException:
      raise errors.InputError(
        f'{path}: column {name!r} has {column.type}, and a value that Python '
        "can't hold: leave the column out"
      ) from None
    if pyarrow.types.is_timestamp(column.type):
      values = [x and x.replace(' ', 'T', 1) for x in values]
  if pyarrow.types.is_map(column.type):
    return [x if x is None else dict(x) for x in values]
  return [_plain(value) for value in values]


def _is_text(scalar):
  try:
    scalar.as_py()
  except UnicodeDecodeError:
    return False
  return True


def _named(row, classes, where):
  """Returns a row with the names of its classes."""
  for column, names in classes.items():
    label = row[column]
    if label in HIDDEN:
      row[column] = None
      continue
    if not isinstance(label, int) or not 0 <= label < len(names):
      raise errors.InputError(
        f'{where}: {column}={label!r}: the file names the classes {names}'
      )
    row[column] = names[label]
  return row


def _plain(value):
  """Returns a value, or the Image of a hub's {'bytes': ..., 'path': ...}."""
  if isinstance(value, dict) and isinstance(value.get('bytes'), bytes):
    return values_lib.Image(value['bytes'])
  if isinstance(value, (datetime.date, datetime.time)):
    return value.isoformat()
  return value
