"""Prepared TFDS datasets: `data.source='tfds:NAME'` below `data.data_dir`.

A document is the text in `data.field` of an example; a list of texts becomes
one line per text; an image becomes its pixels, as `data.image` says. If
`data.classes` names classes, `data.label` is read too, and no text may be
empty; otherwise empty texts are skipped. Columns and classes that aren't given
are those of the dataset's features (rnn_jax/data/columns.py). Documents are
named by column `id`, if each has one of its own. The splits are the dataset's
own, except that a test split without labels is left out, and that a missing
validation split is taken from the training split, by `data.splits`.

The dataset is read without TensorFlow, so it must be on disk as ArrayRecord,
which `launch.prepare` writes. /CONFIG and :VERSION may follow NAME, as in TFDS.
"""

import dataclasses
import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.images import images
from rnn_jax.data.preparation import prepared
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents

REMEDY = 'prepare the dataset again without such examples'
TEXT_KINDS = (object, np.str_)


@dataclasses.dataclass(frozen=True)
class Config(base.Columns):
  """Options of the source, of section `data` of the config."""

  data_dir: str = 'data'  # where datasets are prepared

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and classes of the features.

    Raises:
      InputError: as `load`, or the features leave a choice.
    """
    builder = _open(self)
    resolved = _resolve(self, builder, task.classifies)
    if not (resolved.numbers_as_text or _reads_images(builder, resolved)):
      columns.check_not_numbers(resolved.field, _texts(builder, resolved.field))
    return resolved


class Examples:
  """The Reader of one split; a unit is an example."""

  def __init__(
    self,
    source: Sequence[Mapping[str, Any]],
    name: str,
    split: str,
    data: Config,
  ) -> None:
    self.files = (f'{name}/{split}',)
    self._source = source
    self._field = data.field
    self._prefix = f'{name}/{split}'
    self._with_classes = bool(data.classes)
    self.sizes = self._count()
    self._ids = self._read_ids()
    self.labels: np.ndarray | None = None
    self.difficulties: np.ndarray | None = None
    if data.classes:
      labels = self._column(data.label, np.int64)
      valid = (labels >= base.UNLABELLED) & (labels < len(data.classes))
      self._check_column(f'data.label={data.label!r}', labels, valid)
      self.labels = base.labelled(
        self.sizes, labels, self._prefix, data.label, data.missing_labels
      )
    if data.difficulty:
      self.difficulties = numbers = self._column(data.difficulty, np.float64)
      key = f'data.difficulty={data.difficulty!r}'
      self._check_column(key, numbers, np.isfinite(numbers))

  @property
  def names(self) -> tuple[str, ...]:
    """The ids of the examples, or the split and the number of each."""
    if self._ids is not None:
      return tuple(name.decode() for name in self._ids.tolist())
    return tuple(map(self._where, range(len(self.sizes))))

  def read(self, unit: int, start: int, stop: int) -> bytes:
    return self._text(unit)[start:stop]

  def _where(self, n):
    return f'{self._prefix}:{n}'

  def _read_ids(self):
    """Returns what names the examples; None: nothing names each of them."""
    rows = (row.get(columns.ID) for row in self._source)
    return columns.unique_ids(map(_plain, rows))

  def _count(self):
    rows = (row[self._field] for row in self._source)
    sizes = [self._size(value, n) for n, value in enumerate(rows)]
    return np.array(sizes, np.int64)

  def _size(self, value, n):
    """Returns the bytes of a text that is fit for training, or raises."""
    is_list = not isinstance(value, bytes)
    try:
      texts = [text.decode() for text in (value if is_list else [value])]
    except UnicodeDecodeError:
      raise errors.InputError(
        f'{self._where(n)}: {self._field!r} is not UTF-8: {REMEDY}'
      ) from None
    empty = not texts or not all(map(str.strip, texts))
    if empty and (self._with_classes or (is_list and texts)):
      reason = 'has an empty item' if is_list and texts else 'is empty'
      raise errors.InputError(
        f'{self._where(n)}: {self._field!r} {reason}: {REMEDY}'
      )
    return len(_joined(value))

  def _check_column(self, key, values, valid):
    if len(wrong := np.flatnonzero(~valid)):
      raise errors.InputError(
        f'{self._where(wrong[0])}: {key} has the invalid value '
        f'{values[wrong[0]]}: {REMEDY}'
      )

  def _column(self, name, dtype):
    values = (row[name] for row in self._source)
    return np.fromiter(values, dtype, len(self._source))

  def _text(self, n):
    return _joined(self._source[n][self._field])


class ImageExamples(Examples):
  """The Reader of one split of images, which are decoded on demand."""

  def __init__(
    self,
    source: Sequence[Mapping[str, Any]],
    name: str,
    split: str,
    data: Config,
  ) -> None:
    self._image = base.image_options(data)
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


def raw_files(data: Config) -> dict[str, list[str]]:
  """Returns the files of the prepared dataset.

  Raises:
    InputError: the dataset isn't prepared in `data.data_dir`.
  """
  return {'data_dir': base.files_in(str(_open(data).data_dir))}


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: the dataset isn't prepared in `data.data_dir`, isn't ArrayRecord
      or is damaged; it has no text in `data.field`; or it has an example that
      can't be used.
  """
  data, builder = _checked(data)
  name = _name(data)
  given = {
    split: _documents(builder, name, split, data)
    for split in documents.SPLITS
    if split in builder.info.splits
  }
  if 'test' in given and base.is_unlabelled('test', given['test'].labels):
    del given['test']
  return documents.complete(given, data)


def open_split(
  data: Config, split: str = ''
) -> tuple[str, documents.Documents]:
  """Returns (the name of a split, its documents).

  Without a `split` it is the last of train, validation and test that exists.

  Raises:
    InputError: as `load`, or there is no such split.
  """
  data, builder = _checked(data)
  given = [each for each in documents.SPLITS if each in builder.info.splits]
  if split and split not in given or not given:
    errors.refuse('--split', split, f'{data.source} has the splits {given}')
  split = split or given[-1]
  return split, _documents(builder, _name(data), split, data)


def _checked(data):
  """Returns (section `data` with its columns, the dataset's builder)."""
  builder = _open(data)
  data = _resolve(data, builder, False)
  _check_field(builder, data)
  if data.classes:
    _check_label(builder, data)
  if data.difficulty:
    _check_difficulty(builder, data)
  return data, builder


def _name(data):
  name = data.source.partition(':')[2]
  if not name:
    raise errors.InputError(
      f"data.source={data.source!r}: name the dataset, as in 'tfds:reviews'"
    )
  return name


def _open(data):
  return prepared.open_dataset(_name(data), data.data_dir)


def _resolve(data, builder, classifies):
  features = builder.info.features

  def look():
    return {name: _column(features[name], data) for name in sorted(features)}

  return columns.choose(data, classifies, sorted(features), look)


def _texts(builder, field):
  """Yields the texts of a column of the first split; none if it has others."""
  if builder.info.features[field].np_dtype not in TEXT_KINDS:
    return
  given = [x for x in documents.SPLITS if x in builder.info.splits]
  split = [*given, *builder.info.splits][0]
  with prepared.quiet(), prepared.reading(builder, split):
    for row in builder.as_data_source(split):
      value = row[field]
      listed = [value] if isinstance(value, bytes) else value
      yield [text.decode(errors='replace') for text in listed]


def _column(feature, data):
  """Returns what a feature may be used for."""
  if data.holds_images:
    is_text = _is_image(feature)
  else:
    is_text = feature.np_dtype in TEXT_KINDS
  names = tuple(getattr(feature, 'names', None) or ())
  return columns.Column(is_text, names, bool(names))


def _plain(value):
  """Returns an id of an example as Python has it."""
  if isinstance(value, bytes):
    return value.decode(errors='replace')
  return int(value) if isinstance(value, (int, np.integer)) else value


def _joined(value):
  if isinstance(value, bytes):
    return value
  return documents.join_lines(text.decode() for text in value).encode()


def _check_field(builder, data):
  features = builder.info.features
  texts = sorted(n for n in features if features[n].np_dtype in TEXT_KINDS)
  if data.field not in texts and not _reads_images(builder, data):
    images_in = sorted(n for n in features if _is_image(features[n]))
    raise errors.InputError(
      f'data.field={data.field!r}: {data.source} has text in {texts}'
      + (f' and images in {images_in}' if images_in else '')
    )


def _reads_images(builder, data):
  """Whether `data.field` has encoded images."""
  features = builder.info.features
  return data.field in features and _is_image(features[data.field])


def _is_image(feature):
  return type(feature).__name__ == 'Image'  # TFDS is slow to import


def _check_label(builder, data):
  """Checks that the dataset numbers its classes as `data.classes` does."""
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
    if not _reads_images(builder, data):
      source = builder.as_data_source(split)
      return documents.whole(Examples(source, name, split, data))
    base.check_image_layout(data)
    import tensorflow_datasets as tfds

    encoded = {data.field: tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split, decoders=encoded)
    return documents.whole(ImageExamples(source, name, split, data))
