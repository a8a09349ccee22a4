"""The columns of a dataset: from the first example, checked on all others.

A column is text, a number, an image, a class, or a list of texts or numbers.
"""

import collections
import dataclasses
import io
import math
from collections.abc import Sequence

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.images import codec
from rnn_jax.data.tables import values as values_lib

NUMBERS = (bool, int, float)
REMEDY = 'skip such examples with --skip_empty, or name the column in --text'


@dataclasses.dataclass(frozen=True)
class Column:
  """The kind of a column: str, bool, int, float or values_lib.Image."""

  kind: type
  is_list: bool = False


@dataclasses.dataclass
class Schema:
  """The columns of a dataset, in the order of the first example.

  Attributes:
    columns: by name.
    label: the column of classes, or ''.
    classes: their names; () until `finish` if none were given.
    is_given: whether the names of the classes were given.
    seen: the names of the classes that occur.
    colored: the columns with an image that isn't gray.
    numbers: the columns that are text in the file and numbers in the dataset.
    texts: the columns that must not be empty.
    skipped: how many examples were left out, by reason.
  """

  columns: dict[str, Column]
  label: str
  classes: tuple[str, ...]
  is_given: bool
  seen: set[str] = dataclasses.field(default_factory=set)
  colored: set[str] = dataclasses.field(default_factory=set)
  numbers: dict[str, type] = dataclasses.field(default_factory=dict)
  texts: tuple[str, ...] = ()
  skipped: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )

  def observe(self, example: values_lib.Row) -> None:
    """Checks an example, and records its class and what its columns have.

    Raises:
      InputError: a column is missing, superfluous, empty or of another kind,
        or the label is outside the classes.
    """
    where, values, _ = example
    if values.keys() != self.columns.keys():
      raise errors.InputError(
        f'{where}: columns {[*values]}, where the first example has '
        f'{[*self.columns]}'
      )
    for name, value in values.items():
      if name == self.label:
        self._check_label(where, value)
      else:
        self.columns[name] = _widened(self.columns[name], value)
        _check_value(where, name, value, self.columns[name])
        if name in self.texts:
          values_lib.check_filled(value, name, where, REMEDY)

    self._observe_colors(values)
    self._observe_numbers(values)

  def assume_numbers(self) -> None:
    """Assumes that columns of texts are integers until others are observed.

    For files without types, such as CSV. A column is numeric if each of its
    values is a number: 12, -0.5 or 1e-3, but not 007, which is a name. Column
    'text' stays text, and so do labels.
    """
    for name, column in self.columns.items():
      if column == Column(str) and name not in (self.label, columns.TEXT):
        self.numbers[name] = int

  def _observe_numbers(self, values):
    for name in [*self.numbers]:
      value = values[name]
      if values_lib.INTEGER.fullmatch(value):
        continue
      if values_lib.is_number(value) and math.isfinite(float(value)):
        self.numbers[name] = float
      else:
        del self.numbers[name]

  def _observe_colors(self, values):
    for name, column in self.columns.items():
      if column.kind is values_lib.Image and name not in self.colored:
        value = values[name]
        if not all(map(_is_gray, value if column.is_list else [value])):
          self.colored.add(name)

  def channels(self, column: str) -> int:
    """Returns the channels of a column's images: 1 if all of them are gray."""
    return 3 if column in self.colored else 1

  def merge(self, other: 'Schema') -> None:
    """Adds what a schema with the same beginning has seen in other examples."""
    for name, column in other.columns.items():
      if column.kind is float:
        self.columns[name] = column
    self.seen |= other.seen
    self.colored |= other.colored
    self.skipped.update(other.skipped)
    self.numbers = {
      name: float if float in (kind, other.numbers[name]) else int
      for name, kind in self.numbers.items()
      if name in other.numbers
    }

  def finish(self) -> None:
    """Sets the columns of numbers and the names of the classes, in order.

    Raises:
      InputError: all examples are of one class.
    """
    for name, kind in self.numbers.items():
      self.columns[name] = Column(kind)
    if not self.label:
      return
    if not self.is_given:
      self.classes = columns.in_order(self.seen)
    if not self.seen:
      raise errors.InputError(
        f'--label={self.label!r}: no example has a class: name another column, '
        "or give --label=''"
      )
    if len(self.seen) < 2:
      raise errors.InputError(
        f'--label={self.label!r}: all examples are of one class, '
        f"{next(iter(self.seen))!r}; give --label='' if this isn't "
        'classification'
      )

  def class_of(self, label: object) -> int:
    """Returns the class of a label that was observed, or UNLABELLED."""
    return values_lib.class_of(label, self.label, self.classes, '')

  def _check_label(self, where, label):
    if label in values_lib.MISSING:
      return  # survey.conclude decides
    if isinstance(label, (list, dict, float)):
      raise errors.InputError(
        f"{where}: {self.label}={label!r} isn't a class: give a name or a "
        'number'
      )
    if self.is_given:
      label = self.classes[
        values_lib.class_of(
          label, self.label, self.classes, where, 'or add it to --classes'
        )
      ]
    self.seen.add(str(label))


def from_example(
  first: values_lib.Row, label: str | None, classes: Sequence[str]
) -> Schema:
  """Returns the schema of the first example.

  Args:
    first: the example.
    label: the column of classes; None: 'label' if it exists; '': no classes.
    classes: their names; empty: those that occur.

  Raises:
    InputError: a value can't be stored, or column `label` is missing.
  """
  label = label_of(first, label)
  columns = {
    # A label may be missing, and any class is a text.
    name: Column(str) if name == label else _column(first.where, name, value)
    for name, value in first.values.items()
  }
  if classes and not label:
    raise errors.InputError(
      f'--classes={",".join(classes)}: no column of classes: name it in --label'
    )
  return Schema(columns, label, tuple(classes), bool(classes))


def label_of(first: values_lib.Row, label: str | None) -> str:
  """Returns the column of classes; the arguments are those of from_example.

  Raises:
    InputError: there is no such column.
  """
  if label is None:
    return 'label' if 'label' in first.values else ''
  if label and label not in first.values:
    raise errors.InputError(
      f'--label={label!r}: {first.where} has the columns {[*first.values]}'
    )
  return label


def _column(where, name, value):
  kinds = (str, *NUMBERS, values_lib.Image)
  if isinstance(value, list):
    if not value:
      raise errors.InputError(
        f'{where}: {name}=[] in the first example does not show its kind: put '
        'another one first'
      )
    value, is_list = value[0], True
  else:
    is_list = False
  if type(value) not in kinds:
    raise errors.InputError(
      f'{where}: {name} is {type(value).__name__}: give text, numbers, images '
      'or lists of them'
    )
  return Column(type(value), is_list)


def _widened(column, value):
  """Makes a column of integers float once a float occurs."""
  items = value if column.is_list and isinstance(value, list) else [value]
  if column.kind is int and any(type(item) is float for item in items):
    return dataclasses.replace(column, kind=float)
  return column


def _check_value(where, name, value, column):
  if not column.is_list:
    _check_item(where, name, value, column.kind)
    return
  if not isinstance(value, list):
    raise errors.InputError(
      f'{where}: {name} must be a list, not {value!r:.60}'
    )
  for number, item in enumerate(value):
    _check_item(where, f'{name}[{number}]', item, column.kind)


def _is_gray(image):
  import PIL.Image

  with PIL.Image.open(io.BytesIO(image.content)) as opened:
    return PIL.Image.getmodebase(opened.mode) == 'L'


def _check_item(where, name, value, kind):
  if type(value) is not kind and not (kind is float and type(value) is int):
    raise errors.InputError(
      f'{where}: {name} is {type(value).__name__} {value!r:.60}, and '
      f'{kind.__name__} in the first example'
    )
  if type(value) is int and not -(2**63) <= value < 2**63:
    raise errors.InputError(
      f'{where}: {name}={value!r:.60} is outside the range of 64-bit integers: '
      'correct it, or write it as text'
    )
  if kind is values_lib.Image:
    codec.check(value.content, f'{where}: {name}')
