"""Rows of files as documents, read by their offset: sources jsonl and csv.

A document is the text in column `data.field` of a row, see data/tables/
values.py. If `data.classes` names classes, `data.label` is read too; a row
without one is an error, or skipped if `data.missing_labels` says so. Documents
are named by column `id` if every row has one of its own, and else by file and
line.
"""

import array
import copy
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data import workers
from rnn_jax.data.store import arrays
from rnn_jax.data.store import folder as folder_lib
from rnn_jax.data.tables import lines as lines_lib
from rnn_jax.data.tables import values
from rnn_jax.system import activity

FEW = 64  # files that stay open
PART = 2**25  # bytes of rows that a worker indexes at once
WORTH_IT = 2**29  # bytes that are faster indexed by several processes
FLAG = 'data.field'
D = TypeVar('D', bound=config_lib.Data)


class Table(Protocol):
  """A file of rows."""

  @property
  def file(self) -> str:
    """Its path."""

  @property
  def is_typed(self) -> bool:
    """Whether it tells numbers from text."""

  def rows(self) -> Iterator[values.Located]:
    """Yields the rows; raises InputError at one that can't be read."""

  def parts(self, size: int) -> Iterator[tuple['Table', int]]:
    """Yields tables of its rows, in turn, of about `size` bytes, and bytes.

    A line of a part counts from the part's begin, see `after`.
    """

  def lines(self) -> int:
    """Returns how many lines it has; a table that is one part may say 0."""

  def after(self, lines: int) -> 'Table':
    """Returns the same part, which so many lines of the file precede."""

  def parse(self, content: bytes) -> dict[str, Any]:
    """Returns the row in these bytes, which were a row before."""


class Options(Protocol):
  """Section `data` of a source of tables."""

  @property
  def field(self) -> str: ...
  @property
  def label(self) -> str: ...
  @property
  def classes(self) -> tuple[str, ...]: ...
  @property
  def difficulty(self) -> str: ...
  @property
  def missing_labels(self) -> str: ...


class Rows:
  """The Reader of the rows of tables.

  Args:
    tables: the files.
    data: section `data`, with its columns.

  Raises:
    InputError: a row has no text, class or difficulty where one is needed.
  """

  def __init__(self, tables: Sequence[Table], data: Options) -> None:
    self.files = tuple(table.file for table in tables)
    self._tables = tuple(tables)
    self._field = data.field
    locations, sizes, labels, difficulties = [], [], [], []
    ids = columns.UniqueIds()
    for file, part in _indexed(tables, data):
      before = np.full((len(part.sizes), 1), file)
      locations.append(np.hstack([before, part.locations]))
      sizes.append(part.sizes)
      labels.append(part.labels)
      difficulties.append(part.difficulties)
      for value in part.ids:
        ids.add(value)
    self._locations = np.concatenate([*locations, np.zeros((0, 4), np.int64)])
    self._ids = ids.array()
    self.sizes = _joined(sizes, np.int64)
    self.labels = _joined(labels, np.int64) if data.classes else None
    self.difficulties = (
      _joined(difficulties, np.float64) if data.difficulty else None
    )
    self.names = Names(self.files, self._locations, self._ids)
    if self.labels is not None:
      name = self.files[0] if len(tables) == 1 else f'{len(tables)} files'
      self.labels = values.labelled(
        self.sizes, self.labels, name, data.label, data.missing_labels
      )
    # Of many files, each is opened when one of its rows is read.
    few = self.files if len(self.files) <= FEW else ()
    self._opened = tuple(map(arrays.Bytes, few))

  def part(self, units: np.ndarray) -> 'Rows':
    """Returns the reader of some of the rows."""
    part = copy.copy(self)
    for name in ('_locations', '_ids', 'sizes', 'labels', 'difficulties'):
      if (values := getattr(self, name)) is not None:
        setattr(part, name, values[units])
    part.names = Names(part.files, part._locations, part._ids)
    return part

  def read(self, unit: int, start: int, stop: int) -> bytes:
    """Returns bytes of the text of a row."""
    index, _, offset, length = self._locations[unit].tolist()
    if self._opened:
      file = self._opened[index]
    else:
      file = arrays.Bytes(self.files[index])
    content = file.read(offset, offset + length)
    row = self._tables[index].parse(content)
    document = values.text_of(row, self._field, self.names[unit])
    return document.encode()[start:stop]


class _Index(NamedTuple):
  """What a worker returns of the rows of a part: numbers, not objects."""

  locations: np.ndarray  # of each row: its line, offset and length
  sizes: np.ndarray
  labels: np.ndarray
  difficulties: np.ndarray
  ids: list[str | None]  # of the rows; [None] if they name no row


def _indexed(tables, data):
  """Yields (number of the file, its _Index) of each part, in turn."""
  total = sum(os.path.getsize(table.file) for table in tables)
  listed = [
    (number, part, size)
    for number, table in enumerate(tables)
    for part, size in table.parts(PART)
  ]
  with activity.doing('indexing the rows', total, 'bytes') as done:
    indexes = workers.by_all_cpus(
      _index_or_nothing,
      ((part, data) for _, part, _ in listed),
      total >= WORTH_IT,
    )
    file, lines = -1, 0
    for (number, part, size), made in zip(listed, indexes, strict=True):
      if number != file:
        file, lines = number, 0
      if made is None:
        _index(part.after(lines), data)  # says in which line
        raise errors.InputError(
          f'{part.file}: this file changed while it was read: start again'
        )
      index, count = made
      index.locations[:, 0] += lines
      lines += count
      yield number, index
      done(size)


def _index_or_nothing(given):
  """Returns (_Index, lines) of a part; None if a row can't be read."""
  part, data = given
  try:
    return _index(part, data), part.lines()
  except errors.InputError:
    return None


def _index(table, data):
  locations, sizes = array.array('q'), array.array('q')
  labels, difficulties = array.array('q'), array.array('d')
  ids = columns.UniqueIds()
  for row in table.rows():
    where = f'{table.file}:{row.line}'
    locations.extend(row[:3])
    number = _label(row.values, data, where) if data.classes else None
    labelled = number not in (None, values.UNLABELLED)
    document = values.filled_text(row.values, data.field, where, FLAG, labelled)
    sizes.append(len(document.encode()))
    ids.add(row.values.get(columns.ID))
    if number is not None:
      labels.append(number)
    if name := data.difficulty:
      given = row.values.get(name)
      difficulties.append(
        values.number_of(given, name, where, 'data.difficulty')
      )
  return _Index(
    np.array(locations, np.int64).reshape(-1, 3),
    np.array(sizes, np.int64),
    np.array(labels, np.int64),
    np.array(difficulties, np.float64),
    ids.values(),
  )


def _joined(parts, dtype):
  return np.concatenate([np.zeros(0, dtype), *parts])


class Names(Sequence[str]):
  """The ids of rows, or file and line of each, made when it is asked for."""

  def __init__(
    self,
    files: Sequence[str],
    locations: np.ndarray,
    ids: np.ndarray | None,
  ) -> None:
    folder = os.path.commonpath([os.path.dirname(file) for file in files])
    self._files = [os.path.relpath(file, folder) for file in files]
    self._locations = locations
    self._ids = ids

  def __len__(self) -> int:
    return len(self._locations)

  def __getitem__(self, index: Any) -> Any:
    if self._ids is not None:
      return self._ids[index].decode()
    return (
      f'{self._files[self._locations[index, 0]]}:{self._locations[index, 1]}'
    )


def opener(
  data: D, open_table: Callable[[str], Table]
) -> Callable[[str, str], Rows]:
  """Returns what opens the rows of (path, config key that names it).

  It raises InputError if no file matches, a file is empty or not UTF-8, or a
  row can't be read or lacks a text, class or difficulty.

  Args:
    data: section `data` of a source with the options of base.Columns.
    open_table: returns the Table of a file.

  Raises:
    InputError: as `resolve`.
  """
  options: Any = _resolve(data, False, open_table)

  def open_rows(path, key):
    tables = [open_table(file) for file in lines_lib.match(path, key)]
    rows = Rows(tables, options)
    if not rows.sizes.any():
      raise errors.InputError(f'{key}={path!r}: no row has any text')
    return rows

  return open_rows


def resolve(data: D, classifies: bool, open_table: Callable[[str], Table]) -> D:
  """Returns section `data` with its columns and classes, see columns.py.

  Args:
    data: the section; its keys that aren't empty are kept.
    classifies: whether the label and the classes are needed.
    open_table: returns the Table of a file.

  Raises:
    InputError: a row can't be read, there isn't exactly one column to choose,
      or that of the text has numbers.
  """
  resolved: Any = _resolve(data, classifies, open_table)
  if not resolved.numbers_as_text:
    files = lines_lib.match(resolved.path, 'data.path')
    rows = (row.values for file in files for row in open_table(file).rows())
    found = (row.get(resolved.field) for row in rows)
    columns.check_not_numbers(resolved.field, found)
  return resolved


def _resolve(data, classifies, open_table):
  options: Any = data
  labelled = classifies or bool(options.classes)
  if options.field and (not labelled or (options.label and options.classes)):
    return data
  files = lines_lib.match(options.path, 'data.path')
  raw = {'path': files}
  # What the columns of a large corpus are is looked at once, too.
  where = folder_lib.root(data, folder_lib.total_bytes(raw))
  tables = [open_table(file) for file in files]
  first = next((row for table in tables for row in table.rows()), None)
  if first is None:
    errors.refuse('data.path', options.path, 'no row has any text')

  def look_once():
    if where is None:
      return look(tables)
    name = folder_lib.digest(raw, _how(options))
    kept = folder_lib.keep(where, name, lambda _: _look_at(tables))
    found = _look_at(tables) if kept is None else kept.about
    return {
      name: columns.Column(is_text, tuple(classes), is_label)
      for name, (is_text, classes, is_label) in found['columns'].items()
    }

  return columns.choose(data, classifies, [*first.values], look_once)


def _how(options):
  """Returns what the columns of the files depend on."""
  delimiter = getattr(options, 'delimiter', '')
  given = {'delimiter': delimiter} if delimiter else {}
  return {'columns of': options.source} | given


def _look_at(tables):
  """Returns what the columns may be used for, of JSON's types."""
  return {
    'columns': {
      name: (column.is_text, column.classes, column.is_label)
      for name, column in look(tables).items()
    }
  }


def look(tables: Sequence[Table]) -> Mapping[str, columns.Column]:
  """Returns what the columns of tables may be used for; reads all rows."""
  seen: dict[str, _Seen] = {}
  for table in tables:
    for row in table.rows():
      for name, value in row.values.items():
        seen.setdefault(name, _Seen()).add(value, table.is_typed)
  return {name: each.column() for name, each in seen.items()}


class _Seen:
  """What the values of a column are."""

  def __init__(self):
    self._count = 0
    self._texts = self._numbers = True
    self._classes = set()

  def add(self, value, is_typed):
    if value in (None, ''):
      return
    self._count += 1
    self._texts &= _is_text(value)
    self._numbers &= not is_typed and values.is_number(value)
    if type(value) not in (str, int, bool):
      self._classes = None
    elif self._classes is not None:
      self._classes.add(str(value))
      if len(self._classes) > columns.MAX_CLASSES:
        self._classes = None

  def column(self):
    classes = columns.in_order(self._classes or ())
    few = 2 <= len(classes) <= self._count // 2
    is_text = self._texts and not self._numbers and self._count > 0
    return columns.Column(is_text, classes, few)


def _is_text(value):
  items = value if isinstance(value, list) else [value]
  return values.is_messages(value) or all(isinstance(x, str) for x in items)


def _label(row, data, where):
  """Returns the number of a row's class, given by number or by name."""
  label = row.get(data.label)
  if label in values.MISSING and data.missing_labels != values.SKIP:
    raise values.unlabelled(where, data.label)
  return values.class_of(label, data.label, data.classes, where)
