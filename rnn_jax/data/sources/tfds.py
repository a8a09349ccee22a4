"""Prepared TFDS datasets: `data.source='tfds:NAME'` below `data.data_dir`.

A document is the text in `data.field` of an example; a list of texts gets a
line for each; a picture is its pixels, as `data.image` says. Where
`data.classes` names classes, `data.label` is read too.
Splits are the dataset's own; where it has no validation split, `data.splits`
takes its share off training. Read without TensorFlow, so that the dataset must
lie on disk as ArrayRecord, which `launch.prepare` writes. NAME may go on with
/CONFIG and :VERSION, as TFDS has it.
"""

import numpy as np

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import documents
from rnn_jax.data import pictures
from rnn_jax.data import prepared


class Examples:
  """The Reader of one split; a unit is an example."""

  def __init__(self, source, name: str, split: str, data: config.Data):
    self.files = (f'{name}/{split}',)
    self._source = source
    self._field = data.field
    self._prefix = f'{name}/{split}'
    self.sizes = self._count()
    self.labels = self.difficulties = None
    if data.classes:
      self.labels = self._column(data.label, np.int64)
    if data.difficulty:
      self.difficulties = self._column(data.difficulty, np.float64)

  @property
  def names(self) -> tuple[str, ...]:
    return tuple(f'{self._prefix}:{n}' for n in range(len(self.sizes)))

  def read(self, unit: int, start: int, stop: int) -> bytes:
    return self._text(unit)[start:stop]

  def _count(self):
    rows = range(len(self._source))
    return np.array([len(self._text(n)) for n in rows], np.int64)

  def _column(self, name, dtype):
    found = (row[name] for row in self._source)
    return np.fromiter(found, dtype, len(self._source))

  def _text(self, n):
    value = self._source[n][self._field]
    if isinstance(value, bytes):
      return value
    return documents.join_lines(text.decode() for text in value).encode()


class Pictures(Examples):
  """The same of pictures, which are decoded when they are asked for."""

  def __init__(self, source, name: str, split: str, data: config.Data):
    self._image = data.image
    super().__init__(source, name, split, data)

  def _count(self):
    size = int(np.prod(pictures.shape(self._image)))
    return np.full(len(self._source), size, np.int64)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    content = self._source[unit][self._field]
    where = f'{self._prefix}:{unit}'
    pixels = pictures.decode(content, self._image, where)
    return pixels.tobytes()[start:stop]


def load(data: config.Data) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: the dataset is not prepared in `data.data_dir`, or not as
      ArrayRecord, or has no text in `data.field`.
  """
  name = data.source.partition(':')[2]
  if not name:
    raise errors.InputError(
      f"data.source={data.source!r}: name the dataset, as in 'tfds:reviews'"
    )
  builder = prepared.open_dataset(name, data.data_dir)
  _check_field(builder, data)
  if data.classes:
    _check_label(builder, data)
  if data.difficulty:
    _check_difficulty(builder, data)
  found = {
    split: _documents(builder, name, split, data)
    for split in documents.SPLITS
    if split in builder.info.splits
  }
  return documents.complete(found, data)


def _check_field(builder, data):
  features = builder.info.features
  kinds = (object, np.str_)
  texts = sorted(n for n in features if features[n].np_dtype in kinds)
  if data.field not in texts and not _is_picture(builder, data):
    raise errors.InputError(
      f'data.field={data.field!r}: {data.source} has text in {texts}'
      f'{_told_of_pictures(features)}'
    )


def _is_picture(builder, data):
  """Whether `data.field` holds encoded pictures."""
  features = builder.info.features
  return data.field in features and _holds_pictures(features[data.field])


def _holds_pictures(feature):
  return type(feature).__name__ == 'Image'  # unimported: TFDS takes its time


def _told_of_pictures(features):
  found = sorted(n for n in features if _holds_pictures(features[n]))
  return f' and pictures in {found}' if found else ''


def _check_label(builder, data):
  """The dataset must number its classes as `data.classes` does."""
  features = builder.info.features
  if data.label not in features:
    raise errors.InputError(
      f'data.label={data.label!r}: {data.source} has the columns '
      f'{sorted(features)}'
    )
  names = getattr(features[data.label], 'names', None)
  if names is None or tuple(names) != data.classes:
    raise errors.InputError(
      f'data.classes={data.classes!r}: the classes of {data.source} in '
      f'{data.label!r} are {names and tuple(names)}: give those, in that order'
    )


def _check_difficulty(builder, data):
  features = builder.info.features
  numbers = [
    name
    for name in features
    if features[name].shape == ()
    and np.issubdtype(features[name].np_dtype, np.number)
  ]
  if data.difficulty not in numbers:
    raise errors.InputError(
      f'data.difficulty={data.difficulty!r}: {data.source} has numbers in '
      f'{numbers}'
    )


def _documents(builder, name, split, data):
  with prepared.quiet(), prepared.reading(builder, split):
    if not _is_picture(builder, data):
      source = builder.as_data_source(split)
      return documents.whole(Examples(source, name, split, data))
    import tensorflow_datasets as tfds

    encoded = {data.field: tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split, decoders=encoded)
    return documents.whole(Pictures(source, name, split, data))
