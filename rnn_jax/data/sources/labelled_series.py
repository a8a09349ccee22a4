"""Series with labels from tables: CSV, Parquet, .npz and .ts files.

    python -m launch.train --config=configs/series_classification.py \\
        --config.data.path=gestures.csv --workdir=runs/gestures

How tables are read is in rnn_jax/data/series/labelled_tables.py. The label is a
class of a series, a number of a series, or a class of each step, by the task. A
series is in one split; what data.splits holds out of data.path has as much of
each class as the rest. Readings are scaled by the training part, each channel
by itself. What the config leaves open follows from the tables: the channels,
the classes, and the longest row where it is below data.length.
"""

import dataclasses
import functools
import os
import typing

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_tables
from rnn_jax.data.series import scaling
from rnn_jax.data.series import table_files
from rnn_jax.data.series import tables
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents as documents_lib

SCALINGS = EACH, *_ = 'series', 'standard', 'robust', 'mean_abs', 'none'


@dataclasses.dataclass(frozen=True)
class Config(base.Files):
  """Options of the source, of section `data` of the config."""

  # Long, or with a series in each row.
  table: str = config_lib.option(
    'auto', choices='data.series.labelled_tables:KINDS'
  )
  id: str = tables.ID  # column of a series' name
  time: str = tables.TIME  # column of times
  label: str = labelled_tables.LABEL  # column of labels
  channels: tuple[str, ...] = ()  # columns of readings; (): all that remain
  # What a label is; '': by the task.
  labels: str = config_lib.option('', choices=('', *labelled.KINDS))
  # Readings of each channel that a step sees at once.
  window: int = config_lib.option(1, minimum=1, maximum=10_000)
  # Of each channel; 'series': of each series by itself.
  scaling: str = config_lib.option(
    'standard', choices='data.sources.labelled_series:SCALINGS'
  )
  # What training varies of a series in each epoch: its speed and its level
  # (data/series/augmentation.py).
  warp: float = config_lib.option(0.0, minimum=0, maximum=2)
  offset: float = config_lib.option(0.0, minimum=0)

  holds_series: typing.ClassVar[bool] = True
  labels_series: typing.ClassVar[bool] = True
  names_classes: typing.ClassVar[bool] = True

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the channels, the classes and what a label is.

    Raises:
      InputError: a table can't be read, or a label isn't what the task needs.
    """
    parts = [read for _, read in _parts(self)]
    longest = max(len(x.values_LxC) for part in parts for x in part.series)
    data = dataclasses.replace(
      self,
      tokenizer='scales',
      table=parts[0].table,
      channels=parts[0].channels,
      labels=task.series_label,
    )
    fixed = self.length_schedule or getattr(self, 'boundaries', ())
    if not fixed:
      data = dataclasses.replace(data, length=min(self.length, longest))
    if task.series_label == labelled.NUMBER:
      return data
    found = {x for each in parts[0].series for x in _labels(each, data) if x}
    if not found:
      _refuse_unlabelled(self, parts[0])
    return dataclasses.replace(
      data, classes=self.classes or columns.in_order(found)
    )

  def holding(self, documents: documents_lib.Documents) -> typing.Self:
    """Returns the options with rows as long as the longest series."""
    read = map(documents.read, range(len(documents)))
    lengths = [len(labelled.content(each).values_LxC) for each in read]
    return self.shortened(max(self.length, *lengths))

  @property
  def widths(self) -> tuple[int, int, int]:
    """The widths of a batch's readings, calendar and future."""
    return self.window * max(len(self.channels), 1), 0, 1

  def table_options(self, key: str = 'data.') -> labelled_tables.Options:
    """Returns how tables are read; `key` begins the names in messages."""
    return labelled_tables.Options(
      self.table, self.id, self.time, self.label, self.channels, key
    )


def load(data: Config) -> dict[str, documents_lib.Documents]:
  """Returns the series of each split.

  Raises:
    InputError: a table can't be read, a label is missing or not what the task
      needs, or a class has one series.
  """
  parts = dict(_parts(data))
  first = parts['train']
  targets = [target(each, data) for each in first.series]
  _check_targets(first, targets, data)
  chosen = _split(first.series, targets, data)
  given: dict[str, tuple[list[labelled.Series], list[np.ndarray]]] = {}
  for name, numbers in chosen.items():
    own = [first.series[n] for n in numbers], [targets[n] for n in numbers]
    given[name] = own
  for name, read in parts.items():
    if name != 'train':
      given[name] = read.series, [target(x, data) for x in read.series]
  files = [file for path in _paths(data).values() for file in _files(path)]
  spec = _scales(first._replace(series=given['train'][0]), given, data)
  return {
    name: documents_lib.whole(
      labelled.InMemory(*own, data.labels == labelled.CLASS, files, spec)
    )
    for name, own in given.items()
  }


def open_file(path: str, key: str, data: typing.Any) -> documents_lib.Documents:
  """Returns the series of a file, with their labels.

  Args:
    path: the file, glob or folder.
    key: what names it in messages.
    data: section `data` of a run.

  Raises:
    InputError: it can't be read, or a label is missing or unknown.
  """
  options = data.table_options()._replace(is_labelled=True)
  read = labelled_tables.read(path, key, options)
  targets = [target(each, data) for each in read.series]
  return documents_lib.whole(
    labelled.InMemory(
      read.series, targets, data.labels == labelled.CLASS, _files(path)
    )
  )


def target(series: labelled.Series, data: typing.Any) -> np.ndarray:
  """Returns the targets of a series: see labelled.Content.

  Raises:
    InputError: a label is missing, isn't one of data.classes or no number, or
      changes within a series that has one.
  """
  labels = _labels(series, data)
  if data.labels == labelled.STEPS:
    if len(labels) != len(series.values_LxC):
      raise errors.InputError(
        f'{series.where}: series {series.name!r} has {len(labels)} labels for '
        f'{len(series.values_LxC)} steps: give one for each step'
      )
    return np.array([_number(x, series, data) for x in labels], np.float64)
  (label,) = labels
  if not label:
    raise errors.InputError(
      f'{series.where}: series {series.name!r} has no label in '
      f'{data.label!r}: give one, or leave it out'
    )
  if data.labels == labelled.CLASS:
    return np.array([_number(label, series, data)], np.float64)
  try:
    number = float(label)
  except ValueError:
    number = np.nan
  if not np.isfinite(number):
    raise errors.InputError(
      f'{series.where}: the label of series {series.name!r} is {label!r}, '
      "which isn't a number: correct it, or give "
      "task.name='series_classification'"
    )
  return np.array([number])


def _labels(series, data):
  """Returns the labels of a series: one, or one for each step."""
  if data.labels == labelled.STEPS:
    return series.labels or []
  return [labelled_tables.label_of(series, 'series_tagging')]


def _number(label, series, data):
  """Returns the number of a class; UNLABELLED: it has none."""
  if not label:
    return labelled.UNLABELLED
  if label not in data.classes:
    raise errors.InputError(
      f'{series.where}: the label of series {series.name!r} is {label!r}, and '
      f'data.classes={data.classes!r:.200}: correct it, or leave it out'
    )
  return data.classes.index(label)


def _check_targets(read, targets, data):
  if data.labels == labelled.NUMBER:
    return
  counts = np.zeros(len(data.classes), int)
  for each in targets:
    own = np.unique(each[each >= 0]).astype(int)
    counts[own] += 1 if data.labels == labelled.CLASS else 2
  for name, count in zip(data.classes, counts, strict=True):
    if count == 1:
      errors.refuse(
        'data.path',
        data.path,
        f'class {name!r} has one series, which is too few to learn it: give '
        'more, or leave it out',
      )
  if not counts.any():
    _refuse_unlabelled(data, read)


def _refuse_unlabelled(data, read):
  raise errors.InputError(
    f'data.label={data.label!r}: {read.series[0].where}: no series has a label '
    'there: name the column that has it'
  )


def _split(series, targets, data):
  """Returns the numbers of the series of `data.path` in each split."""
  shares = [
    0 if getattr(data, f'{name}_path') else percentage
    for name, percentage in zip(
      documents_lib.SPLITS[1:], data.splits[1:], strict=True
    )
  ]
  held_out = [
    max(1, len(series) * share // 100) if share else 0 for share in shares
  ]
  if sum(held_out) >= len(series):
    errors.refuse(
      'data.splits',
      data.splits,
      f'{len(series)} series cannot fill them: give more series, or '
      'data.validation_path and data.test_path',
    )
  names = labelled.InMemory(series, targets, False)
  order = documents_lib.shuffled(documents_lib.whole(names))
  places = np.empty(len(series))
  groups = np.array([each[0] for each in targets])
  if data.labels != labelled.CLASS:
    groups = np.zeros(len(series))
  for group in np.unique(groups):  # as much of each class in every split
    own = order[groups[order] == group]
    places[own] = (np.arange(len(own)) + 0.5) / len(own)
  order = order[np.argsort(places[order], kind='stable')]
  test = len(series) - held_out[1]
  validation = test - held_out[0]
  parts = order[:validation], order[validation:test], order[test:]
  return {
    name: np.sort(part).tolist()
    for name, part in zip(documents_lib.SPLITS, parts, strict=True)
  }


def _scales(read, given, data):
  """Returns the spec of the scales of the channels, and of a target."""
  kind = 'none' if data.scaling == EACH else data.scaling
  fitted = {}
  for channel, values_N in labelled_tables.columns(read).items():
    if np.isnan(values_N).all():
      errors.refuse(
        'data.channels',
        data.channels,
        f'all readings of {channel!r} to train on are missing: leave it out',
      )
    scale = scaling.fit(kind, False, values_N)
    fitted[channel] = [scale.loc, scale.scale]
  if data.labels == labelled.NUMBER:
    targets_N = np.concatenate(given['train'][1])
    scale = scaling.fit('standard', False, targets_N)
    fitted[data.label] = [scale.loc, scale.scale]
  return {'kind': 'scales', 'scaling': kind, 'log': False, 'fitted': fitted}


def _paths(data):
  """Returns the given path of each split."""
  given = data.path, data.validation_path, data.test_path
  return {
    name: path
    for name, path in zip(documents_lib.SPLITS, given, strict=True)
    if path or name == 'train'
  }


def _files(path):
  return table_files.files(path, labelled_tables.SUFFIXES)


def _parts(data):
  """Returns (split, its table) of each path; those after are as the first."""
  keys = {'train': 'data.path'}
  read, options = [], data.table_options()._replace(is_labelled=True)
  for name, path in _paths(data).items():
    key = keys.get(name, f'data.{name}_path')
    stamps = tuple(
      (file, status.st_mtime_ns, status.st_size)
      for file in _files(path)
      for status in [os.stat(file)]
    )
    part = _read(path, key, options, stamps)
    options = options._replace(channels=part.channels, table=part.table)
    read.append((name, part))
  return read


@functools.lru_cache(maxsize=4)
def _read(path, key, options, stamps):
  del stamps  # files that change are read again
  return labelled_tables.read(path, key, options)
