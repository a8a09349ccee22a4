"""Datasets of the Hugging Face library: `data.source='hf:NAME_OR_FOLDER'`.

    pip install rnn_jax[hf]
    python -m launch.train --config=configs/text_classification.py \\
        --config.data.source=hf:rotten_tomatoes --workdir=runs/reviews

A folder is one that `save_to_disk` wrote, or one of JSONL, CSV or Parquet files
as `load_dataset` takes them; any other name is looked up on the Hub, which
needs the network once. Texts stay in the library's Arrow files, which are
mapped into memory: a document is read when it is used. Scripts of datasets are
never executed.

Columns and classes that aren't given are those of the features, see
rnn_jax/data/columns.py; splits are the dataset's own, as in source tfds.
"""

import dataclasses
import os
import re
import typing
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.preparation import classes as classes_lib
from rnn_jax.data.preparation import inputs
from rnn_jax.data.sources import base
from rnn_jax.data.tables import values as values_lib
from rnn_jax.data.text import documents

if typing.TYPE_CHECKING:
  import datasets

ON_HUB = re.compile(r'\w[\w.-]*(/\w[\w.-]*)?')
SAVED = 'dataset_dict.json', 'state.json'  # one of them is in a saved folder
BATCH = 1000  # rows that are in memory at a time
KINDS = 'string', 'large_string', 'bool', 'int8', 'int16', 'int32', 'int64'
REMEDY = 'correct the dataset, or leave the row out'


@dataclasses.dataclass(frozen=True)
class Config(base.Columns):
  """Options of the source, of section `data` of the config."""

  subset: str = ''  # one of several of a name on the Hub, such as glue's 'mrpc'

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and classes of the features.

    Raises:
      InputError: the dataset can't be opened, or the features leave a choice.
    """
    splits = _open(self)
    resolved = _resolve(self, splits, task.classifies)
    if not resolved.numbers_as_text and splits:
      rows = next(iter(splits.values()))
      if resolved.field in rows.column_names:
        columns.check_not_numbers(resolved.field, _values(rows, resolved.field))
    return resolved


class Rows:
  """The Reader of one split; a unit is a row.

  Args:
    rows: the split.
    name: of the split, for messages and documents.
    data: section `data`, with its columns.

  Raises:
    InputError: a column is missing, or a row has no text, class or difficulty
      where one is needed.
  """

  def __init__(self, rows: 'datasets.Dataset', name: str, data: Config) -> None:
    self.files = (name,)
    self._name = name
    self._field = data.field
    _check_columns(rows, data)
    self._texts = rows.select_columns([data.field])
    self.sizes = self._read_sizes(bool(data.classes))
    self._ids = self._read_ids(rows)
    self.labels = self._read_labels(rows, data) if data.classes else None
    self.difficulties: np.ndarray | None = None
    if data.difficulty:
      self.difficulties = self._read_numbers(rows, data.difficulty)

  @property
  def names(self) -> tuple[str, ...]:
    """The ids of the rows, or the split and the number of each."""
    if self._ids is not None:
      return tuple(name.decode() for name in self._ids.tolist())
    return tuple(map(self._where, range(len(self.sizes))))

  def read(self, unit: int, start: int, stop: int) -> bytes:
    """Returns bytes of the text of a row."""
    value = self._texts[int(unit)][self._field]
    return _text(value).encode()[start:stop]

  def _where(self, n):
    return f'{self._name}:{n}'

  def _read_sizes(self, labelled):
    """Returns the bytes of each text; whole batches, not rows, are Python's."""
    import pyarrow

    sizes = []
    for table in self._texts.with_format('arrow').iter(BATCH):
      column = table.column(self._field)
      try:
        column.validate(full=True)
      except pyarrow.ArrowInvalid as error:
        where = self._where(len(sizes))
        raise errors.InputError(
          f'{where}: {self._field!r} is damaged there or soon after '
          f'({_first_line(error)}): copy it again'
        ) from None
      for value in column.to_pylist():
        sizes.append(self._size(value, labelled, len(sizes)))
    return np.array(sizes, np.int64)

  def _size(self, value, labelled, n):
    items = value if isinstance(value, list) else [value or '']
    filled = items and all(item and item.strip() for item in items)
    if not filled and (labelled or isinstance(value, list) and items):
      raise errors.InputError(
        f'{self._where(n)}: {self._field!r} is empty, or an item of it is: '
        f'{REMEDY}'
      )
    return len(_text(value).encode())

  def _read_ids(self, rows):
    if columns.ID not in rows.column_names:
      return None
    return columns.unique_ids(_values(rows, columns.ID))

  def _read_labels(self, rows, data):
    declared = _declared(rows.features[data.label])
    labels = [
      _label(value, data.classes, bool(declared))
      for value in _values(rows, data.label)
    ]
    for n, number in enumerate(labels):
      if number is None or not base.UNLABELLED <= number < len(data.classes):
        raise errors.InputError(
          f'{self._where(n)}: data.label={data.label!r} is none of '
          f'data.classes={data.classes!r}: {REMEDY}'
        )
    return base.labelled(
      self.sizes,
      np.array(labels, np.int64),
      self._name,
      data.label,
      data.missing_labels,
    )

  def _read_numbers(self, rows, column):
    values = list(_values(rows, column))
    for n, value in enumerate(values):
      if type(value) not in (int, float) or not np.isfinite(value):
        raise errors.InputError(
          f'{self._where(n)}: data.difficulty={column!r} is {value!r}: give a '
          'number'
        )
    return np.array(values, np.float64)


def raw_files(data: Config) -> dict[str, list[str]]:
  """Returns the files of a folder; those of a name on the Hub aren't known."""
  name = _name(data)
  return {'source': base.files_in(name)} if os.path.isdir(name) else {}


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: the library is missing, the dataset can't be opened, or a row
      can't be used.
  """
  splits = _open(data)
  data = _resolve(data, splits, False)
  short = os.path.basename(os.path.normpath(_name(data)))
  given = {
    name: documents.whole(Rows(rows, f'{short}/{name}', data))
    for name, rows in splits.items()
  }
  if 'test' in given and base.is_unlabelled('test', given['test'].labels):
    del given['test']
  return documents.complete(given, data)


def _name(data):
  name = data.source.partition(':')[2]
  if not name:
    raise errors.InputError(
      f'data.source={data.source!r}: name a dataset or a folder, as in '
      "'hf:rotten_tomatoes'"
    )
  return name


def _open(data) -> dict[str, 'datasets.Dataset']:
  """Returns {split: its rows}; other splits than ours are left out."""
  name = _name(data)
  if not os.path.isdir(name) and not ON_HUB.fullmatch(name):
    errors.refuse(
      'data.source', data.source, 'no such folder, and no name of the Hub'
    )
  try:
    import datasets
  except ImportError:
    errors.refuse(
      'data.source',
      data.source,
      "it needs the package datasets: pip install 'rnn_jax[hf]'",
    )
  try:
    if any(os.path.exists(os.path.join(name, file)) for file in SAVED):
      opened: Any = datasets.load_from_disk(name)
    else:
      opened = datasets.load_dataset(name, data.subset or None)
  except Exception as error:
    raise errors.InputError(
      f'data.source={data.source!r}: datasets cannot open it '
      f'({_first_line(error)}): check the name, data.subset and the network, '
      'or give a folder'
    ) from None
  if isinstance(opened, datasets.Dataset):
    opened = {'train': opened}
  # A format that somebody saved, such as torch's, would change the values.
  named = {
    inputs.ALIASES.get(n, n): x.with_format(None) for n, x in opened.items()
  }
  return {name: named[name] for name in documents.SPLITS if name in named}


def _resolve(data, splits, classifies):
  rows = next(iter(splits.values()), None)
  if rows is None:
    return data  # `documents.complete` says that there is no split
  names = rows.column_names

  def look():
    labels = columns.LABEL, data.label
    return {name: _column(rows, name, name in labels) for name in names}

  return columns.choose(data, classifies, names, look)


def _column(rows, name, is_named) -> columns.Column:
  """Returns what a column may be used for."""
  feature = rows.features[name]
  if names := _declared(feature):
    return columns.Column(False, tuple(names), True)
  dtype = getattr(feature, 'dtype', None)
  if dtype not in KINDS:
    return columns.Column(_is_text(feature))
  first = rows[:BATCH][name]
  few = 2 <= len({*first}) <= len(first) // 2
  classes: list[str] = []
  if few or is_named:
    values = [x for x in rows.unique(name) if x is not None and x != '']
    classes = [*map(str, values)] if len(values) <= columns.MOST else []
  return columns.Column(_is_text(feature), columns.in_order(classes), few)


def _declared(feature):
  """Returns the names that a feature declares, or None."""
  return feature.names if type(feature).__name__ == 'ClassLabel' else None


def _is_text(feature):
  inner = getattr(feature, 'feature', feature)  # of a list
  return getattr(inner, 'dtype', None) in ('string', 'large_string')


def _check_columns(rows, data):
  texts = [name for name, x in rows.features.items() if _is_text(x)]
  if data.field not in texts:
    errors.refuse(
      'data.field', data.field, f'{data.source} has text in {texts}'
    )
  for key in ('label', 'difficulty') if data.classes else ('difficulty',):
    name = getattr(data, key)
    if name and name not in rows.column_names:
      errors.refuse(
        f'data.{key}', name, f'{data.source} has {rows.column_names}'
      )
  if not data.classes:
    return
  declared = _declared(rows.features[data.label])
  if declared and tuple(declared) != data.classes:
    errors.refuse(
      'data.classes',
      data.classes,
      f'the classes of {data.source} in {data.label!r} are '
      f'{tuple(declared)}: give those, in that order',
    )


def _label(value, classes, declared):
  """Returns the number of a class, UNLABELLED, or None if it's neither."""
  if value in values_lib.MISSING:
    return base.UNLABELLED
  return value if declared else classes_lib.number(value, classes)


def _values(rows, column):
  """Yields the values of a column, a batch at a time."""
  for batch in rows.select_columns([column]).iter(BATCH):
    yield from batch[column]


def _text(value):
  if isinstance(value, list):
    return documents.join_lines(value)
  return value or ''


def _first_line(error):
  lines = str(error).strip().splitlines()
  return (lines or [type(error).__name__])[0].rstrip('.')
