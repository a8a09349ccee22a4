"""Which columns of a set have the text and the class, and the classes' names.

A config may leave three keys of section `data` empty, and the set fills them:

    field     the column 'text' ('image' for images), else the only one that can
              be the text
    label     the column 'label', else the only column of classes
    classes   the names that the set declares, or else the values of `label`,
              sorted as numbers or alphabetically

A task may read several columns: `field` joins their names with commas. Where
several columns are possible, the config has to name one. A source says
what its columns are in `Config.resolve`; training calls it before config.json
is written, so that a run opens without its data.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values

JOIN = ','  # between the columns whose texts make a document together
ID = 'id'  # the column that names documents
TEXT, IMAGE, LABEL = 'text', 'image', 'label'
MAX_CLASSES = 1000  # classes; a column with more values is not one of classes
SHOWN = 20  # columns in a message
READS = (
  'this source has texts, dialogues, images and their labels; series of '
  "numbers are of data.source='series'"
)
SAMPLE = 1000  # values of a column that show what it has
NOTHING = {'', '-', '?', 'na', 'n/a', 'nan', 'none', 'null'}  # of a column
NUMBER = re.compile(r'[-+]?[0-9.,]*[0-9.]([eE][-+]?[0-9]+)?%?,?')
BETWEEN = re.compile(r'[\s;|\[\]()]+')  # numbers of a value
LOOKED_AT = 1000  # characters of a value

D = TypeVar('D', bound=config_lib.Data)


@dataclasses.dataclass(frozen=True)
class Column:
  """What a column may be used for.

  Attributes:
    is_text: whether it has texts, or the images of a source of images.
    classes: the names that it declares, or its values; (): it has no classes.
    is_label: whether it most likely is the label: its classes are declared, or
      its values repeat.
  """

  is_text: bool = False
  classes: tuple[str, ...] = ()
  is_label: bool = False


def resolve(config: config_lib.Config) -> config_lib.Config:
  """Returns the config with the columns and classes that its data have.

  Raises:
    InputError: the data can't be read, or they leave a choice: the message
      lists the columns.
  """
  data = config.data
  if config.task.columns and getattr(data, 'field', None) == '':
    data = values.replaced(data, {'field': JOIN.join(config.task.columns)})
  data = data.resolve(config.task)
  if config.task.classifies and len(data.classes) < 2:
    errors.refuse(
      'data.classes',
      data.classes,
      f'that is all that data.source={data.source!r} has, and a classifier '
      'needs two: give other data',
    )
  return dataclasses.replace(config, data=data)


def choose(
  data: D,
  classifies: bool,
  names: Sequence[str],
  look: Callable[[], Mapping[str, Column]],
) -> D:
  """Returns section `data` with its columns and classes.

  Args:
    data: the section; its keys that aren't empty are kept.
    classifies: whether the label and the classes are needed.
    names: of the columns.
    look: returns the Column of each name; called only where names don't do.

  Raises:
    InputError: a column doesn't exist, or there isn't exactly one to choose.
  """
  look = functools.cache(look)
  label, classes = data.label, data.classes
  if classifies or classes:
    label = label or _usual(LABEL, names) or _only_label(data, look())
    _check_label(data, label, names)
    classes = classes or _classes(label, look()[label])
  usual = IMAGE if data.holds_images else TEXT
  field = data.field or _usual(usual, names)
  field = field or _only_text(data, look(), (label, ID))
  chosen: dict[str, Any] = {'field': field, 'label': label or LABEL}
  return dataclasses.replace(data, classes=classes, **chosen)


def check_not_numbers(field: str, values: Iterable[object]) -> None:
  """Checks that the column of the text doesn't have mostly numbers.

  Args:
    field: its name.
    values: of its rows; SAMPLE of them are looked at.

  Raises:
    InputError: more than half of those that have something are numbers.
  """
  count = numbers = 0
  for value in itertools.islice(values, SAMPLE):
    items = value if isinstance(value, list) else [value]
    texts = [x[:LOOKED_AT].strip() for x in items if isinstance(x, str)]
    texts = [x for x in texts if x.lower() not in NOTHING]
    count += bool(texts)
    numbers += bool(texts) and all(map(_has_numbers, texts))
  if numbers > count / 2:
    errors.refuse(
      'data.field',
      field,
      f'{numbers} of its first {count} values are numbers, which would be read '
      f'as texts, digit by digit; {READS}: name a column of texts, or give '
      'data.numbers_as_text=True',
    )


def in_order(classes: Iterable[str]) -> tuple[str, ...]:
  """Returns the names of classes, sorted as numbers or alphabetically."""
  classes = set(classes)
  numbers = all(name.removeprefix('-').isdecimal() for name in classes)
  return tuple(sorted(classes, key=int if numbers else None))


class UniqueIds:
  """Ids of rows, as long as each row has one of its own.

  If one has none, or two have the same, they name no row.
  """

  def __init__(self) -> None:
    self._ids: dict[str, None] | None = {}
    self._count = 0

  def add(self, value: object) -> None:
    """Takes what column ID of the next row has."""
    if self._ids is None:
      return
    self._count += 1
    if type(value) in (str, int) and value != '':
      self._ids[str(value)] = None
    if len(self._ids) < self._count:
      self._ids = None

  def values(self) -> list[str | None]:
    """Returns them, which `add` takes again; [None] if they name no row."""
    return [None] if self._ids is None else [*self._ids]

  def array(self) -> np.ndarray | None:
    """Returns them as bytes, which are cheap to send to workers, or None."""
    if not self._ids:
      return None
    return np.array([each.encode(errors='replace') for each in self._ids])


def unique_ids(values: Iterable[object]) -> np.ndarray | None:
  """Returns the ids of rows, of what column ID has, or None: UniqueIds."""
  ids = UniqueIds()
  for value in values:
    ids.add(value)
  return ids.array()


def _has_numbers(text):
  """Whether a text is numbers only, as '1.5', '1,5e-3' or '[0.1, 0.2]'."""
  parts = [part for part in BETWEEN.split(text) if part]
  is_digits = re.search('[0-9]', text) is not None
  return is_digits and all(map(NUMBER.fullmatch, parts))


def _usual(name, names):
  return name if name in names else ''


def _check_label(data, label, names):
  if label not in names:
    raise errors.InputError(
      f'data.label={label!r}: {data.source} has the columns {_listed(names)}'
    )


def _classes(label, column):
  if not column.classes:
    errors.refuse(
      'data.label',
      label,
      f'it has no classes, or more than {MAX_CLASSES:,}: name another column, '
      'or give data.classes',
    )
  return column.classes


def _only_label(data, columns):
  labels = [name for name, column in columns.items() if column.is_label]
  found = [name for name in labels if name not in (ID, data.field)]
  if not found:
    errors.refuse(
      'data.label',
      '',
      f'{data.source} has no column of classes, only {_listed(columns)}: name '
      'the one of the class',
    )
  return _only(found, data, 'label', 'class')


def _only_text(data, columns, others):
  texts = [n for n in columns if columns[n].is_text and n not in others]
  found = [n for n in texts if not columns[n].is_label] or texts
  kind = 'image' if data.holds_images else 'text'
  if not found:
    errors.refuse(
      'data.field',
      '',
      f'{data.source} has no column of {kind}s, only {_listed(columns)}; '
      f'{READS}: give other data, or the data.layout for these',
    )
  return _only(found, data, 'field', kind)


def _only(found, data, key, kind):
  """Returns the one name that was found, or raises InputError."""
  if len(found) > 1:
    errors.refuse(
      f'data.{key}',
      '',
      f'the {kind} may be in any of {_listed(found)} of {data.source}: name '
      'one',
    )
  return found[0]


def _listed(names):
  names = [*names]
  rest = len(names) - SHOWN
  return f'{names[:SHOWN]}' + (f' and {rest} more' if rest > 0 else '')
