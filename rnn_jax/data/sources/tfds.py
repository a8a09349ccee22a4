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
from collections.abc import Iterator
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
from rnn_jax.data.tables import typed
from rnn_jax.data.text import documents
from rnn_jax.system import files

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


class Examples(typed.Split):
  """The Reader of one split; a unit is an example."""

  def __init__(
    self,
    source: Sequence[Mapping[str, Any]],
    name: str,
    data: Config,
    features: Mapping[str, Any],
  ) -> None:
    self._source = source
    declares = bool(_declared(features, data))
    super().__init__(name, data, [*features], declares)

  def column(self, name: str) -> Iterator[Any]:
    """Yields what each example has in a column."""
    for n, row in enumerate(self._source):
      yield self._plain(row[name], name, n)

  def value(self, unit: int) -> Any:
    """Returns the text of an example, or a list of texts."""
    return self._plain(self._source[unit][self._field], self._field, unit)

  def _plain(self, value, name, n):
    """Returns a value of Python's types."""
    if isinstance(value, bytes):
      try:
        return value.decode()
      except UnicodeDecodeError:
        raise errors.InputError(
          f'{self._where(n)}: {name!r} is not UTF-8: {typed.REMEDY}'
        ) from None
    if isinstance(value, np.generic):
      return value.item()
    if isinstance(value, (list, np.ndarray)):
      return [self._plain(x, name, n) for x in value]
    return value


class ImageExamples(Examples):
  """The Reader of one split of images, which are decoded on demand."""

  def __init__(
    self,
    source: Sequence[Mapping[str, Any]],
    name: str,
    data: Config,
    features: Mapping[str, Any],
  ) -> None:
    self._image = images.options_of(data)
    super().__init__(source, name, data, features)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    content = self._source[unit][self._field]
    pixels = images.decode(content, self._image, self._where(unit))
    return pixels.tobytes()[start:stop]

  def _read_sizes(self, labelled):
    del labelled
    for n, row in enumerate(self._source):
      images.check(row[self._field], self._image, self._where(n))
    size = int(np.prod(images.shape(self._image)))
    return np.full(len(self._source), size, np.int64)


def raw_files(data: Config) -> dict[str, list[str]]:
  """Returns the files of the prepared dataset.

  Raises:
    InputError: the dataset isn't prepared in `data.data_dir`.
  """
  return {'data_dir': files.below(str(_open(data).data_dir))}


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
  return base.complete(given, data)


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
  features = builder.info.features
  readable = [n for n in sorted(features) if _is_readable(features[n])]
  declared = _declared(features, data)
  typed.check_columns(data, sorted(features), readable, declared)
  return data, builder


def _name(data):
  return base.name_of(data, 'tfds:reviews')


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


def _is_readable(feature):
  """Whether a feature has texts or images."""
  return feature.np_dtype in TEXT_KINDS or _is_image(feature)


def _declared(features, data):
  """Returns the classes that the label's feature declares, or None."""
  if data.label not in features:
    return None
  return getattr(features[data.label], 'names', None)


def _reads_images(builder, data):
  """Whether `data.field` has encoded images."""
  features = builder.info.features
  return data.field in features and _is_image(features[data.field])


def _is_image(feature):
  return type(feature).__name__ == 'Image'  # TFDS is slow to import


def _documents(builder, name, split, data):
  name, features = f'{name}/{split}', builder.info.features
  with prepared.quiet(), prepared.reading(builder, split):
    if not _reads_images(builder, data):
      source = builder.as_data_source(split)
      return documents.whole(Examples(source, name, data, features))
    images.check_layout(data)
    import tensorflow_datasets as tfds

    encoded = {data.field: tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split, decoders=encoded)
    return documents.whole(ImageExamples(source, name, data, features))
