"""Writes a TFDS dataset without TensorFlow.

ArrayRecord shards of serialized tf.train.Example, next to the features and the
split metadata that `tfds.builder_from_directory` reads. All of it is written
into a hidden folder, which is moved into place at the end.
"""

import contextlib
import dataclasses
import io
import os
import shutil
from collections.abc import Iterator
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.images import codec
from rnn_jax.data.images import images
from rnn_jax.data.preparation import schema as schema_lib
from rnn_jax.data.tables import values as values_lib

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

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
    elif column.kind is values_lib.Image:
      shape = None, None, schema.channels(name)
      feature = tfds.features.Image(shape=shape)
    else:
      feature = tfds.features.Scalar(KINDS[column.kind])
    features[name] = (
      tfds.features.Sequence(feature) if column.is_list else feature
    )
  return tfds.features.FeaturesDict(features)


class Encoder:
  """Turns an example of a schema into a record of a shard."""

  def __init__(self, schema: schema_lib.Schema) -> None:
    from tensorflow_datasets.core import example_serializer

    self._schema = schema
    self._features = features_of(schema)
    self._serializer = example_serializer.ExampleSerializer(
      self._features.get_serialized_info()
    )

  def __call__(self, example: values_lib.Row) -> bytes:
    """Returns the serialized tf.train.Example, the same in every process."""
    encoded = self._features.encode_example(
      {name: self._plain(name, value) for name, value in example.values.items()}
    )
    proto = self._serializer.get_tf_example(encoded)
    # By default, the order of columns depends on the process.
    return proto.SerializeToString(deterministic=True)

  def _plain(self, name, value):
    """Returns a value as tfds encodes it."""
    if name == self._schema.label:
      return self._schema.class_of(value)
    if isinstance(value, list):
      return [self._plain(name, item) for item in value]
    if isinstance(value, values_lib.Image):
      return io.BytesIO(_with_channels(value, self._schema.channels(name)))
    if name in self._schema.numbers:
      return self._schema.numbers[name](value)
    return value


def _with_channels(image, channels):
  """Returns an image's file, re-encoded as PNG unless it has these channels.

  TFDS needs one number for the whole column: an image in another mode (palette,
  transparency, 16 bits per pixel) is converted.
  """
  import PIL.Image

  mode = images.MODES[channels]
  with PIL.Image.open(io.BytesIO(image.content)) as opened:
    if opened.mode == mode:
      return image.content
    file = io.BytesIO()
    codec.in_mode(opened, mode).save(file, 'PNG')
  return file.getvalue()


@dataclasses.dataclass(frozen=True)
class Layout:
  """Where the shards of a dataset are.

  Attributes:
    folder: of the dataset.
    name: of the dataset.
    counts: {split: number of examples}.
  """

  folder: str
  name: str
  counts: dict[str, int]

  def template(self, split: str) -> 'tfds.core.ShardedFileTemplate':
    """Returns how tfds names the shards of a split."""
    import tensorflow_datasets as tfds

    return tfds.core.ShardedFileTemplate(
      data_dir=self.folder,
      dataset_name=self.name,
      split=split,
      filetype_suffix='array_record',
    )

  def path(self, split: str, shard: int) -> str:
    """Returns the file of a shard."""
    number = len(shard_lengths(self.counts[split]))
    path = self.template(split).sharded_filepath(
      shard_index=shard, num_shards=number
    )
    return os.fspath(path)

  def write_metadata(
    self, schema: schema_lib.Schema, sizes: Mapping[str, int], description: str
  ) -> None:
    """Writes what tfds needs next to the shards.

    Args:
      schema: the columns.
      sizes: {split: bytes of its records}.
      description: of the dataset.
    """
    import tensorflow_datasets as tfds

    infos = [
      tfds.core.SplitInfo(
        name=split,
        shard_lengths=shard_lengths(count),
        num_bytes=sizes[split],
        filename_template=self.template(split),
      )
      for split, count in self.counts.items()
    ]
    tfds.folder_dataset.write_metadata(
      data_dir=self.folder,
      features=features_of(schema),
      split_infos=infos,
      description=description,
      check_data=False,
    )


class Writer:
  """Shards of several splits, filled in order, one open for each split."""

  def __init__(self, layout: Layout) -> None:
    self.sizes = dict.fromkeys(layout.counts, 0)  # bytes of records
    self._layout = layout
    self._written = dict.fromkeys(layout.counts, 0)
    self._open: dict[str, Any] = {}  # the writer of a shard by split

  def add(self, split: str, record: bytes) -> None:
    """Appends a record to its split."""
    if self._written[split] % SHARD == 0:
      self._close(split)
      path = self._layout.path(split, self._written[split] // SHARD)
      self._open[split] = shard_writer(path)
    self._open[split].write(record)
    self._written[split] += 1
    self.sizes[split] += len(record)

  def close(self) -> None:
    """Closes the shards."""
    for split in [*self._open]:
      self._close(split)

  def _close(self, split):
    if split in self._open:
      self._open.pop(split).close()


def shard_writer(path: str) -> Any:
  """Returns a writer of records, which are read one at a time."""
  from array_record.python import array_record_module

  return array_record_module.ArrayRecordWriter(path, 'group_size:1')


def shard_lengths(count: int) -> list[int]:
  """Returns the number of examples of each shard."""
  return [min(SHARD, count - begin) for begin in range(0, count, SHARD)]


@contextlib.contextmanager
def moved_into_place(folder: str) -> Iterator[str]:
  """Yields a folder to write into, which becomes `folder` if nothing fails."""
  parent, name = os.path.split(os.path.abspath(folder))
  partial = os.path.join(parent, f'.{name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  existed = os.path.exists(parent)
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
    if not existed:
      with contextlib.suppress(OSError):  # it has the dataset
        os.rmdir(parent)
