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
from collections.abc import Iterator
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.sources import base
from rnn_jax.data.tables import typed
from rnn_jax.data.text import documents
from rnn_jax.system import files

if typing.TYPE_CHECKING:
  import datasets

ON_HUB = re.compile(r'\w[\w.-]*(/\w[\w.-]*)?')
SAVED = 'dataset_dict.json', 'state.json'  # one of them is in a saved folder
BATCH = 1000  # rows that are in memory at a time
KINDS = 'string', 'large_string', 'bool', 'int8', 'int16', 'int32', 'int64'


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
        columns.check_not_numbers(
          resolved.field, _values(rows, resolved.field, self.source)
        )
    return resolved


class Rows(typed.Split):
  """The Reader of one split; a unit is a row.

  Args:
    rows: the split.
    name: of the split, for messages and documents.
    data: section `data`, with its columns.

  Raises:
    InputError: as typed.Split, or the file of a column is damaged.
  """

  def __init__(self, rows: 'datasets.Dataset', name: str, data: Config) -> None:
    names = rows.column_names
    texts = [name for name, x in rows.features.items() if _is_text(x)]
    declared = None
    if data.label in names:
      declared = _declared(rows.features[data.label])
    typed.check_columns(data, names, texts, declared)
    self._rows = rows
    super().__init__(name, data, names, declared is not None)
    self._rows = rows.select_columns([data.field])

  def column(self, name: str) -> Iterator[Any]:
    """Yields what each row has; whole batches, not rows, are Python's."""
    return _values(self._rows, name, self._name)

  def value(self, unit: int) -> Any:
    """Returns the text of a row, or a list of texts."""
    return self._rows[int(unit)][self._field]


def raw_files(data: Config) -> dict[str, list[str]]:
  """Returns the files of a folder; those of a name on the Hub aren't known."""
  name = _name(data)
  return {'source': files.below(name)} if os.path.isdir(name) else {}


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
  return base.complete(given, data)


def _name(data):
  return base.name_of(data, 'hf:rotten_tomatoes')


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
      f'({errors.first_line(error)}): check the name, data.subset and the '
      'network, or give a folder'
    ) from None
  if isinstance(opened, datasets.Dataset):
    opened = {'train': opened}
  # A format that somebody saved, such as torch's, would change the values.
  named = {
    documents.ALIASES.get(n, n): x.with_format(None) for n, x in opened.items()
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
    classes = [*map(str, values)] if len(values) <= columns.MAX_CLASSES else []
  return columns.Column(_is_text(feature), columns.in_order(classes), few)


def _declared(feature):
  """Returns the names that a feature declares, or None."""
  return feature.names if type(feature).__name__ == 'ClassLabel' else None


def _is_text(feature):
  inner = getattr(feature, 'feature', feature)  # of a list
  return getattr(inner, 'dtype', None) in ('string', 'large_string')


def _values(rows, column, name):
  """Yields the values of a column, a batch at a time.

  Raises:
    InputError: its file is damaged; the message begins with `name`.
  """
  import pyarrow

  before = 0
  for table in rows.select_columns([column]).with_format('arrow').iter(BATCH):
    values = table.column(column)
    try:
      values.validate(full=True)
    except pyarrow.ArrowInvalid as error:
      raise errors.InputError(
        f'{name}:{before}: {column!r} is damaged there or soon after '
        f'({errors.first_line(error)}): copy it again'
      ) from None
    yield from values.to_pylist()
    before += len(values)
