"""Options and functions that several sources share.

A source is a file with `Config`, its options, which extends config.Data, and

    load(data) -> {split: documents.Documents}

for the splits 'train', 'validation' and 'test'. A source of many files has

    raw_files(data) -> {what they are for: the files that documents are in}

so that a large corpus is read once (rnn_jax/data/store). One whose data name
their classes says so, `names_classes`, and finds them in `Config.resolve`.
"""

import dataclasses
import typing
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns as columns_lib
from rnn_jax.data.tables import values
from rnn_jax.data.text import documents as documents_lib

REMEDY = 'correct the dataset, or leave the row out'


@dataclasses.dataclass(frozen=True)
class Files(config_lib.Data):
  """Options of sources that read files."""

  path: str = ''  # a file or a glob
  validation_path: str = ''  # held-out files; empty: split off `path`
  test_path: str = ''


@dataclasses.dataclass(frozen=True)
class Columns(config_lib.Data):
  """Options of sources whose documents are rows of a table."""

  # Of the text, or of a list of turns; empty: 'text', or the only one.
  field: str = ''
  # Of the class, where there are classes; empty: 'label', or the only one.
  label: str = ''
  # What to do about a row without a class where there are classes.
  missing_labels: str = config_lib.option(
    values.ERROR, choices=(values.ERROR, values.SKIP)
  )
  # Whether a column of numbers may be read as text, digit by digit.
  numbers_as_text: bool = False

  names_classes: typing.ClassVar[bool] = True


class Split:
  """The Reader of one split of a dataset with types: sources hf and tfds.

  A subclass says what its rows have, of Python's types, by `column` and `value`
  (of `data.field`); a row that has no text is None there.

  Args:
    name: of the split, for messages and documents.
    data: section `data`, with its columns.
    names: of the columns.
    declares: whether the label's column declares its classes, and so has their
      numbers.

  Raises:
    InputError: a row has no text, class or difficulty where one is needed.
  """

  def __init__(
    self, name: str, data: Any, names: Sequence[str], declares: bool
  ) -> None:
    self.files = (name,)
    self._name = name
    self._field = data.field
    self.sizes = self._read_sizes(bool(data.classes))
    has_ids = columns_lib.ID in names
    ids = self.column(columns_lib.ID) if has_ids else ()
    self._ids = columns_lib.unique_ids(ids)
    self.labels: np.ndarray | None = None
    if data.classes:
      self.labels = self._read_labels(data, declares)
    self.difficulties: np.ndarray | None = None
    if column := data.difficulty:
      numbers = (
        values.number_of(x, column, self._where(n), 'data.difficulty')
        for n, x in enumerate(self.column(column))
      )
      self.difficulties = np.fromiter(numbers, np.float64)

  def column(self, name: str) -> Iterator[Any]:
    """Yields what each row has in a column."""
    raise NotImplementedError

  def value(self, unit: int) -> Any:
    """Returns what a row has in `data.field`."""
    raise NotImplementedError

  @property
  def names(self) -> tuple[str, ...]:
    """The ids of the rows, or the split and the number of each."""
    if self._ids is not None:
      return tuple(name.decode() for name in self._ids.tolist())
    return tuple(map(self._where, range(len(self.sizes))))

  def read(self, unit: int, start: int, stop: int) -> bytes:
    """Returns bytes of the text of a row."""
    return self._text(self.value(unit), unit)[start:stop]

  def _where(self, n):
    return f'{self._name}:{n}'

  def _text(self, value, n, labelled=False):
    row = {self._field: '' if value is None else value}
    where = self._where(n)
    return values.filled_text(row, self._field, where, '', labelled).encode()

  def _read_sizes(self, labelled):
    sizes = (
      len(self._text(value, n, labelled))
      for n, value in enumerate(self.column(self._field))
    )
    return np.fromiter(sizes, np.int64)

  def _read_labels(self, data, declares):
    given = enumerate(self.column(data.label))
    labels = [self._class(label, n, data, declares) for n, label in given]
    return labelled(
      self.sizes,
      np.array(labels, np.int64),
      self._name,
      data.label,
      data.missing_labels,
    )

  def _class(self, label, n, data, declares):
    where = self._where(n)
    if label in values.MISSING or not declares:
      return values.class_of(label, data.label, data.classes, where, REMEDY)
    if not values.UNLABELLED <= label < len(data.classes):
      raise errors.InputError(
        f'{where}: data.label={data.label!r} has the invalid value {label}: '
        f'{REMEDY}'
      )
    return label


def check_columns(
  data: Any,
  names: Sequence[str],
  texts: Sequence[str],
  declared: Sequence[str] | None,
) -> None:
  """Checks that a dataset with types has the columns of section `data`.

  Args:
    data: the section.
    names: of the dataset's columns.
    texts: those that can be read.
    declared: the classes that column `data.label` declares; None: none.

  Raises:
    InputError: a column is missing, or the classes are others.
  """
  if data.field not in texts:
    errors.refuse(
      'data.field',
      data.field,
      f'the columns of {data.source} that can be read are {texts}: name one',
    )
  for key in ('label', 'difficulty') if data.classes else ('difficulty',):
    name = getattr(data, key)
    if name and name not in names:
      errors.refuse(
        f'data.{key}', name, f'{data.source} has the columns {names}'
      )
  if data.classes and declared and tuple(declared) != data.classes:
    errors.refuse(
      'data.classes',
      data.classes,
      f'the classes of {data.source} in {data.label!r} are '
      f'{tuple(declared)}: give those, in that order',
    )


def name_of(data: config_lib.Data, example: str) -> str:
  """Returns NAME of `data.source='hf:NAME'`.

  Raises:
    InputError: it is empty; says that it is as in `example`.
  """
  name = data.source.partition(':')[2]
  if not name:
    errors.refuse(
      'data.source', data.source, f'name the dataset, as in {example!r}'
    )
  return name


def complete(
  given: dict[str, documents_lib.Documents], data: config_lib.Data
) -> dict[str, documents_lib.Documents]:
  """Returns all splits of a dataset, without a test split of secret classes.

  Raises:
    InputError: as documents.complete.
  """
  if 'test' in given and is_unlabelled('test', given['test'].labels):
    del given['test']
  return documents_lib.complete(given, data)


def load_files(
  data: Files, open_reader: Callable[[str, str], documents_lib.Reader]
) -> dict[str, documents_lib.Documents]:
  """Returns the splits of a source of files.

  A split with its own path takes nothing from `data.path`; its percentage of
  `data.splits` stays in training.

  Args:
    data: section `data` of the config.
    open_reader: returns the Reader of (path, config key to name in messages),
      or raises InputError.

  Raises:
    InputError: as `open_reader`; a file is in two splits; or there are fewer
      documents than splits.
  """
  documents = documents_lib.whole(open_reader(data.path, 'data.path'))
  held_out = {}
  for name in documents_lib.SPLITS[1:]:
    key = f'{name}_path'
    if path := getattr(data, key):
      held_out[name] = documents_lib.whole(open_reader(path, f'data.{key}'))
      documents_lib.check_disjoint(
        documents, held_out[name], f'data.{key}={path!r}'
      )
  percentages = [
    0 if name in held_out else percentage
    for name, percentage in zip(documents_lib.SPLITS, data.splits, strict=True)
  ]
  percentages[0] = 100 - sum(percentages[1:])
  return documents_lib.split(documents, percentages, data.split_by) | held_out


def is_unlabelled(split: str, labels: np.ndarray | None) -> bool:
  """Returns whether it's a test split whose classes are kept secret."""
  if split != 'test' or labels is None:
    return False
  return bool(np.all(labels == values.UNLABELLED))


def unlabelled(where: str, label: str) -> errors.InputError:
  """Returns the error about a row without a class in column `label`."""
  return errors.InputError(
    f'{where}: data.label={label!r} is missing: fill it, or leave out '
    f'such rows with data.missing_labels={values.SKIP!r}'
  )


def labelled(
  sizes: np.ndarray, labels: np.ndarray, name: str, column: str, missing: str
) -> np.ndarray:
  """Returns labels, after what is to be done about those that are missing.

  A test split may have none at all. Else rows without one are refused, or they
  become empty, so that they are no documents, and a warning counts them.

  Args:
    sizes: bytes of each row's text; changed.
    labels: the class of each row, UNLABELLED where there is none.
    name: of the rows, as 'reviews/test'.
    column: of the labels.
    missing: what to do, ERROR or SKIP.

  Raises:
    InputError: rows have no class.
  """
  lacks = labels == values.UNLABELLED
  if not lacks.any() or is_unlabelled(name.rpartition('/')[2], labels):
    return labels
  if missing != values.SKIP:
    raise unlabelled(f'{name}:{int(np.argmax(lacks))}', column)
  if lacks.all():
    errors.refuse(
      'data.label', column, f'no row of {name} has a class: name another'
    )
  sizes[lacks] = 0
  logging.warning(
    '%s: %s of %s rows have no %r and are left out',
    name,
    f'{lacks.sum():,}',
    f'{len(labels):,}',
    column,
  )
  return labels


def image_options(data: config_lib.Data) -> config_lib.Image:
  """Returns `data.image`, which layout 'images' adds to section `data`."""
  return typing.cast(typing.Any, data).image


def check_image_layout(data: config_lib.Data) -> None:
  """Checks that the layout of a source of images is for images.

  Raises:
    InputError: it isn't; names both.
  """
  if not data.holds_images:
    errors.refuse(
      'data.source',
      data.source,
      f'it has images, and data.layout={data.layout!r} is for tokens: give '
      "data.layout='images'",
    )
