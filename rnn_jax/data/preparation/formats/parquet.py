"""Parquet, as public hubs publish datasets.

If a file names the classes of integer labels, as those of the Hugging Face hub
do, labels become names.
"""

from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax import files
from rnn_jax.data.preparation import examples

SUFFIXES = ('.parquet',)


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields an example for each row.

  Raises:
    InputError: the file isn't a complete Parquet file, or a label is invalid.
  """
  del options
  import pyarrow
  from pyarrow import parquet

  try:
    file = parquet.ParquetFile(path)
    classes = _classes(file.schema_arrow.metadata or {})
    number = 0
    for batch in file.iter_batches():
      for row in batch.to_pylist():
        number += 1
        where = f'{path}: row {number}'
        yield examples.Example(where, _named(row, classes, where))
  except (pyarrow.ArrowInvalid, OSError) as error:
    raise errors.InputError(
      f'{path}: incomplete Parquet file: {error}'
    ) from None


def _classes(metadata):
  """Returns {column: names of its classes} from a hub's metadata."""
  try:
    info = files.from_json(metadata.get(b'huggingface', b'{}'))
  except ValueError:
    return {}
  features = info.get('info', {}).get('features', {})
  return {
    column: feature['names']
    for column, feature in features.items()
    if isinstance(feature, dict) and feature.get('_type') == 'ClassLabel'
  }


def _named(row, classes, where):
  named = {column: _plain(value) for column, value in row.items()}
  for column, names in classes.items():
    label = row.get(column)
    if not isinstance(label, int) or not 0 <= label < len(names):
      raise errors.InputError(
        f'{where}: {column}={label!r}: the file names the classes {names}'
      )
    named[column] = names[label]
  return named


def _plain(value):
  """Returns a value, or the Image of a hub's {'bytes': ..., 'path': ...}."""
  if isinstance(value, dict) and isinstance(value.get('bytes'), bytes):
    return examples.Image(value['bytes'])
  return value
