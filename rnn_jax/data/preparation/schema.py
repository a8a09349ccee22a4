"""The columns of a dataset: from the first example, checked on all others.

A column is text, a number, an image, a class, or a list of texts or numbers.
"""

import collections
import dataclasses
from collections.abc import Sequence

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.images import codec
from rnn_jax.data.preparation import classes as classes_lib
from rnn_jax.data.preparation import examples

NUMBERS = (bool, int, float)
MISSING = (None, '')  # labels of an example without a class
UNLABELLED = -1  # the class of such an example, as TFDS has it


@dataclasses.dataclass(frozen=True)
class Column:
  """The kind of a column: str, bool, int, float or examples.Image."""

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

  def check(self, example: examples.Example) -> None:
    """Checks an example and records its class.

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
          _check_filled(where, name, value)

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
    """Sets the names of the classes, sorted as numbers or alphabetically.

    Raises:
      InputError: all examples are of one class.
    """
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
    """Returns the class of a label that passed `check`, or UNLABELLED."""
    if label in MISSING:
      return UNLABELLED
    number = classes_lib.number(label, self.classes)
    assert number is not None
    return number

  def _check_label(self, where, label):
    if label in MISSING:
      return  # survey.conclude decides
    if isinstance(label, (list, dict, float)):
      raise errors.InputError(
        f"{where}: {self.label}={label!r} isn't a class: give a name or a "
        'number'
      )
    if self.is_given:
      number = classes_lib.number(label, self.classes)
      if number is None:
        raise errors.InputError(
          f'{where}: {self.label}={label!r} is outside the classes '
          f'{[*self.classes]}: correct it, or add it to --classes'
        )
      label = self.classes[number]
    self.seen.add(str(label))


def from_example(
  first: examples.Example, label: str | None, classes: Sequence[str]
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


def label_of(first: examples.Example, label: str | None) -> str:
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
  kinds = (str, *NUMBERS, examples.Image)
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


def has_empty(value: object) -> bool:
  """Returns whether a text, a list or an item of it is empty."""
  if isinstance(value, list):
    return not value or any(map(has_empty, value))
  return isinstance(value, str) and not value.strip()


def _check_filled(where, name, value):
  if not has_empty(value):
    return
  if isinstance(value, list):
    kept = [n for n, item in enumerate(value) if has_empty(item)]
    name = f'{name}[{kept[0]}]' if kept else name
  raise errors.InputError(
    f'{where}: {name} is empty: fill it, skip such examples with --skip_empty, '
    'or name the column of the text in --text'
  )


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
  if kind is examples.Image:
    codec.check(value.content, f'{where}: {name}')
