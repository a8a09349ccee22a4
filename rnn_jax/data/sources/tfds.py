"""Prepared TFDS datasets: `data.source='tfds:NAME'` below `data.data_dir`.

A document is the text in `data.field` of an example; a list of texts gets a
line for each; a picture is its pixels, as `data.image` says. Where
`data.classes` names classes, `data.label` is read too, and no text may be
empty; elsewhere an empty one is no document. Splits are the dataset's own, but
for a test split without labels, which is left out; where there is no validation
split, `data.splits` takes its share off training.

Read without TensorFlow, so that the dataset must lie on disk as ArrayRecord,
which `launch.prepare` writes. NAME may go on with /CONFIG and :VERSION, as TFDS
has it.
"""

import dataclasses

import numpy as np

from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.preparation import prepared
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents

MEND = 'prepare the dataset again without such examples'


@dataclasses.dataclass(frozen=True)
class Config(base.Columns):
  """Options of the source, of section `data` of the config."""

  data_dir: str = 'data'  # where datasets are prepared


class Examples:
  """The Reader of one split; a unit is an example."""

  def __init__(self, source, name: str, split: str, data: Config):
    self.files = (f'{name}/{split}',)
    self._source = source
    self._field = data.field
    self._prefix = f'{name}/{split}'
    self._with_classes = bool(data.classes)
    self.sizes = self._count()
    self.labels = self.difficulties = None
    if data.classes:
      self.labels = self._column(data.label, np.int64)
      if not _is_unlabelled(split, self.labels):
        valid = (self.labels >= 0) & (self.labels < len(data.classes))
        self._check_column(f'data.label={data.label!r}', self.labels, valid)
    if data.difficulty:
      self.difficulties = found = self._column(data.difficulty, np.float64)
      key = f'data.difficulty={data.difficulty!r}'
      self._check_column(key, found, np.isfinite(found))

  @property
  def names(self) -> tuple[str, ...]:
    return tuple(map(self._where, range(len(self.sizes))))

  def read(self, unit: int, start: int, stop: int) -> bytes:
    return self._text(unit)[start:stop]

  def _where(self, n):
    return f'{self._prefix}:{n}'

  def _count(self):
    rows = (row[self._field] for row in self._source)
    sizes = [self._size(value, n) for n, value in enumerate(rows)]
    return np.array(sizes, np.int64)

  def _size(self, value, n):
    """Bytes of a text that is fit for training, or InputError."""
    is_list = not isinstance(value, bytes)
    try:
      texts = [text.decode() for text in (value if is_list else [value])]
    except UnicodeDecodeError:
      raise errors.InputError(
        f'{self._where(n)}: {self._field!r} is not UTF-8: {MEND}'
      ) from None
    empty = not texts or not all(map(str.strip, texts))
    if empty and (self._with_classes or (is_list and texts)):
      told = 'has an empty item' if is_list and texts else 'is empty'
      raise errors.InputError(
        f'{self._where(n)}: {self._field!r} {told}: {MEND}'
      )
    return len(_joined(value))

  def _check_column(self, key, values, valid):
    if len(wrong := np.flatnonzero(~valid)):
      raise errors.InputError(
        f'{self._where(wrong[0])}: {key} holds {values[wrong[0]]}, which is '
        f'none of its values: {MEND}'
      )

  def _column(self, name, dtype):
    found = (row[name] for row in self._source)
    return np.fromiter(found, dtype, len(self._source))

  def _text(self, n):
    return _joined(self._source[n][self._field])


class Pictures(Examples):
  """The same of pictures, which are decoded when they are asked for."""

  def __init__(self, source, name: str, split: str, data: Config):
    self._image = data.image
    super().__init__(source, name, split, data)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    content = self._source[unit][self._field]
    pixels = images.decode(content, self._image, self._where(unit))
    return pixels.tobytes()[start:stop]

  def _count(self):
    for n, row in enumerate(self._source):
      images.check(row[self._field], self._image, self._where(n))
    size = int(np.prod(images.shape(self._image)))
    return np.full(len(self._source), size, np.int64)


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: the dataset is not prepared in `data.data_dir`, or not as
      ArrayRecord, is damaged, has no text in `data.field`, or an example that
      can't be used.
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
  if 'test' in found and _is_unlabelled('test', found['test'].labels):
    del found['test']
  return documents.complete(found, data)


def _joined(value):
  if isinstance(value, bytes):
    return value
  return documents.join_lines(text.decode() for text in value).encode()


def _is_unlabelled(split, labels):
  """Whether it is the test split of a contest, whose classes are secret."""
  return split == 'test' and labels is not None and np.all(labels == -1)


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
    base.check_pictures(data)
    import tensorflow_datasets as tfds

    encoded = {data.field: tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split, decoders=encoded)
    return documents.whole(Pictures(source, name, split, data))
