"""Writes a TFDS dataset without TensorFlow.

ArrayRecord shards of serialized tf.train.Example, next to the features and the
split metadata that `tfds.builder_from_directory` reads. All of it is written
into a hidden folder, which is moved into place at the end.
"""

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.preparation import channels
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import schema as schema_lib

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

VERSION = '1.0.0'
SHARD = 50_000  # examples
KINDS = {bool: np.bool_, int: np.int64, float: np.float64}


def features_of(schema: schema_lib.Schema) -> 'tfds.features.FeaturesDict':
  """Returns the tfds features of a schema."""
  import tensorflow_datasets as tfds

  features: dict[str, Any] = {}
  for name, column in schema.columns.items():
    if name == schema.label:
      features[name] = tfds.features.ClassLabel(names=[*schema.classes])
      continue
    if column.kind is str:
      feature = tfds.features.Text()
    elif column.kind is examples.Image:
      shape = None, None, channels.count(schema, name)
      feature = tfds.features.Image(shape=shape)
    else:
      feature = tfds.features.Scalar(KINDS[column.kind])
    features[name] = (
      tfds.features.Sequence(feature) if column.is_list else feature
    )
  return tfds.features.FeaturesDict(features)


class Writer:
  """Shards of several splits, filled in any order."""

  def __init__(
    self,
    folder: str,
    name: str,
    schema: schema_lib.Schema,
    counts: Mapping[str, int],
  ) -> None:
    """Prepares to write a dataset.

    Args:
      folder: where to write.
      name: of the dataset.
      schema: its columns.
      counts: {split: number of examples}.
    """
    import tensorflow_datasets as tfds

    self._schema = schema
    self._features = features_of(schema)
    self._counts = counts
    self._templates = {
      split: tfds.core.ShardedFileTemplate(
        data_dir=folder,
        dataset_name=name,
        split=split,
        filetype_suffix='array_record',
      )
      for split in counts
    }
    self._written = dict.fromkeys(counts, 0)
    self._bytes = dict.fromkeys(counts, 0)
    self._open: dict[str, Any] = {}  # the writer of a shard by split

  def add(self, split: str, example: examples.Example) -> None:
    """Appends an example to its split."""
    encoded = self._features.encode_example(
      {name: self._plain(name, value) for name, value in example.values.items()}
    )
    record = self._features.serialize_example(encoded)
    self._shard(split).write(record)
    self._written[split] += 1
    self._bytes[split] += len(record)

  def finish(self, description: str) -> None:
    """Closes the shards and writes the metadata that tfds needs."""
    import tensorflow_datasets as tfds

    for shard in self._open.values():
      shard.close()
    infos = [
      tfds.core.SplitInfo(
        name=split,
        shard_lengths=shard_lengths(count),
        num_bytes=self._bytes[split],
        filename_template=self._templates[split],
      )
      for split, count in self._counts.items()
    ]
    tfds.folder_dataset.write_metadata(
      data_dir=os.fspath(self._templates[infos[0].name].data_dir),
      features=self._features,
      split_infos=infos,
      description=description,
      check_data=False,
    )

  def _plain(self, name, value):
    """Returns a value as tfds encodes it."""
    if name == self._schema.label:
      return self._schema.class_of(value)
    if isinstance(value, list):
      return [self._plain(name, item) for item in value]
    if isinstance(value, examples.Image):
      count = channels.count(self._schema, name)
      return io.BytesIO(channels.encode(value, count))
    if name in self._schema.numbers:
      return self._schema.numbers[name](value)
    return value

  def _shard(self, split):
    """Returns the open writer of the shard for the next example."""
    from array_record.python import array_record_module

    lengths = shard_lengths(self._counts[split])
    number = self._written[split] // SHARD
    if self._written[split] % SHARD == 0:
      if split in self._open:
        self._open.pop(split).close()
      path = self._templates[split].sharded_filepath(
        shard_index=number, num_shards=len(lengths)
      )
      self._open[split] = array_record_module.ArrayRecordWriter(
        os.fspath(path), 'group_size:1'
      )
    return self._open[split]


def shard_lengths(count: int) -> list[int]:
  """Returns the number of examples of each shard."""
  return [min(SHARD, count - begin) for begin in range(0, count, SHARD)]


@contextlib.contextmanager
def moved_into_place(folder: str) -> Iterator[str]:
  """Yields a folder to write into, which becomes `folder` if nothing fails."""
  parent, name = os.path.split(os.path.abspath(folder))
  partial = os.path.join(parent, f'.{name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  try:
    os.makedirs(partial)
  except OSError as error:
    raise errors.InputError(
      f'{partial}: {error.strerror}: give a --data_dir that can be written'
    ) from error
  try:
    yield partial
    os.rename(partial, folder)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
