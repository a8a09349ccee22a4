"""Rows of datasets whose columns have types, as documents: sources hf and tfds.

Their libraries read the rows; what is in them is checked as in files.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.tables import values

REMEDY = 'correct the dataset, or leave the row out'


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
    has_ids = columns.ID in names
    ids = self.column(columns.ID) if has_ids else ()
    self._ids = columns.unique_ids(ids)
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
    return values.labelled(
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
