"""Series with labels from tables: long, wide by rows, .npz and .ts.

    long    unique_id,ds,a,b,label   a step in each row, a channel in each of
                                     the columns that remain, or of
                                     data.channels
    rows    unique_id,label,v1,v2    a series of one channel in each row, padded
                                     with empty fields
    .npz    X, y                     X is series x channels x steps, or series x
                                     steps; padded with NaN; y a label for each
    .ts     the format of the time series classification archive, read by
            sktime (extra `ts`), which writes classes in lower case

Long tables are in the order of their rows, or of their times, which must
ascend; times needn't be on a grid. Without an id a long table is one series,
named as its file.
"""

import os
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import fields
from rnn_jax.data.series import labelled
from rnn_jax.data.series import table_files
from rnn_jax.data.series import tables

KINDS = AUTO, LONG, ROWS = 'auto', 'long', 'rows'
LABEL = 'label'
READINGS, LABELS = 'X', 'y'  # the arrays of an .npz
SUFFIXES = *table_files.SUFFIXES, '.ts'
SHOWN = 6  # channels in a message


class Options(NamedTuple):
  """How a table is read; the keys of section `data`.

  Attributes:
    table: one of KINDS.
    id, time, label: names of columns.
    channels: names of columns; (): all that remain.
    key: before the names of these, in messages.
    is_labelled: whether a table must have the column of labels.
  """

  table: str = AUTO
  id: str = tables.ID
  time: str = tables.TIME
  label: str = LABEL
  channels: tuple[str, ...] = ()
  key: str = 'data.'
  is_labelled: bool = False


class Read(NamedTuple):
  """The series of a table, their channels, and its form, of KINDS."""

  series: list[labelled.Series]
  channels: tuple[str, ...]
  table: str


def read(path: str, key: str, options: Options) -> Read:
  """Returns the series of a file, or of the files of a glob or a folder.

  Args:
    path: the file, glob or folder.
    key: what names it in messages, such as 'data.path'.
    options: how they are read.

  Raises:
    InputError: there is no such file, or it isn't a table of numbers; names the
      file, the line and the remedy.
  """
  read: Read | None = None
  names: dict[str, labelled.Series] = {}
  for file in table_files.existing(path, key, SUFFIXES):
    if read is not None:  # all files are read as the first one
      options = options._replace(channels=read.channels, table=read.table)
    part = _read_file(file, options)
    for each in part.series:
      if each.name in names:
        raise errors.InputError(
          f'{each.where}: series {each.name!r} is in {names[each.name].where}, '
          'too: give each a name of its own'
        )
      names[each.name] = each
    read = read or part
  assert read is not None  # see `existing`
  return read._replace(series=[*names.values()])


def of_frame(frame: Any, options: Options) -> Read:
  """Returns the series of a DataFrame, or of arrays.

  Args:
    frame: a pandas DataFrame, or another with `to_pandas`; an array of series x
      channels x steps, or of series x steps; or a list of arrays of channels x
      steps, or of steps.
    options: how a table is read.

  Raises:
    InputError: as `read`; a place is the row's number.
  """
  import pandas as pd  # takes long to import

  if hasattr(frame, 'to_pandas') and not isinstance(frame, pd.DataFrame):
    frame = frame.to_pandas()
  if isinstance(frame, pd.DataFrame):
    return _Table(frame, 'the frame', 0, options).read()
  if isinstance(frame, np.ndarray):
    return _of_arrays(frame, None, 'the array', '', options)
  if isinstance(frame, (list, tuple)):
    arrays = [np.asarray(each) for each in frame]
    return _of_arrays(arrays, None, 'the list', '', options)
  raise errors.InputError(
    f'frame={type(frame).__name__}: give a DataFrame, an array of series x '
    'channels x steps, or a list of arrays'
  )


def label_of(series: labelled.Series, task: str) -> str:
  """Returns the label of a whole series; '': it has none.

  Raises:
    InputError: it changes; `task` labels steps instead.
  """
  given = [each for each in series.labels or () if each]
  others = [each for each in given if each != given[0]]
  if others:
    raise errors.InputError(
      f'{series.where}: series {series.name!r} has the labels {given[0]!r} and '
      f'{others[0]!r}: give one for all of its steps, or task.name={task!r}'
    )
  return given[0] if given else ''


def _read_file(file, options):
  stem = os.path.splitext(os.path.basename(file))[0]
  if file.lower().endswith('.npz'):
    arrays = table_files.read_npz(file)
    if READINGS not in arrays:
      raise errors.InputError(
        f'{file}: it has {sorted(arrays)}: name the array of readings '
        f'{READINGS!r}, and that of labels {LABELS!r}'
      )
    given = arrays[READINGS], arrays.get(LABELS)
    return _of_arrays(*given, file, f'{stem}-', options)
  if file.lower().endswith('.ts'):
    return _of_arrays(*_read_ts(file), file, f'{stem}-', options)
  return _Table(*table_files.read_frame(file), options).read()


def _read_ts(file):
  """Returns (a list of arrays of channels x steps, the labels or None)."""
  try:
    from sktime import datasets  # an extra
  except ImportError:
    raise errors.InputError(
      f"{file}: a .ts file needs sktime: pip install 'rnn_jax[ts]'"
    ) from None
  try:
    nested, labels = datasets.load_from_tsfile(
      file, return_data_type='nested_univ'
    )
  except Exception as error:  # its parser raises what it happens upon
    raise errors.InputError(
      f'{file}: not a .ts file ({errors.first_line(error)}): restore a copy'
    ) from None
  arrays = []
  for n, row in enumerate(nested.itertuples(index=False)):
    lengths = {len(channel) for channel in row}
    if len(lengths) > 1:
      raise errors.InputError(
        f'{file}: series {n} has channels of {sorted(lengths)} steps: give all '
        'of them as many'
      )
    arrays.append(np.stack([np.asarray(x, np.float64) for x in row]))
  return arrays, labels


def _of_arrays(
  readings: Any, labels: Any, file: str, prefix: str, options: Options
) -> Read:
  """Returns the series of arrays, named by `prefix` and their numbers."""
  _check_arrays(readings, labels, file)
  series, channels = [], options.channels
  for n, given in enumerate(readings):
    values_CxL = np.atleast_2d(np.asarray(given, np.float64))
    count = len(values_CxL)
    channels = channels or (
      (tables.VALUE,)
      if count == 1
      else tuple(f'channel_{k + 1}' for k in range(count))
    )
    name = f'{prefix}{n}'
    if count != len(channels):
      raise errors.InputError(
        f'{file}: series {name!r} has {count} channels, and the others, or the '
        f'run, {len(channels)}: {_shown(channels)}: give these'
      )
    own = None
    if labels is not None:
      own = [_text(x) for x in np.ravel(labels[n])]
    made = labelled.Series(
      name, values_CxL.T, own, None, f'{file}: series {n + 1}'
    )
    series.append(_checked(made))
  return Read(series, channels, options.table)


def _check_arrays(readings, labels, file):
  if not len(readings):
    raise errors.InputError(f'{file}: it has no series: give one or more')
  for given in readings:
    array = np.asarray(given)
    if array.ndim not in (1, 2) or array.dtype.kind not in 'fiub':
      raise errors.InputError(
        f'{file}: a series is {array.dtype} {list(array.shape)}: give numbers, '
        'of channels x steps or of steps'
      )
  if labels is not None and len(labels) != len(readings):
    raise errors.InputError(
      f'{file}: {len(labels)} labels for {len(readings)} series: give one for '
      'each'
    )


class _Table(tables.Table):
  """A table with labels; see the module's docstring."""

  def __init__(
    self, frame: Any, file: str, first: int, options: Options
  ) -> None:
    plain = tables.Options(
      'auto', options.id, options.time, tables.VALUE, options.key
    )
    super().__init__(frame, file, first, plain)
    self._own = options

  def read(self) -> Read:
    """Returns the series."""
    kind, label = self._own.table, self._own.label
    if self._own.is_labelled and label not in self._columns:
      self._lacks('label', label)
    if kind == AUTO:
      kind = self._form()
    return self._long_table() if kind == LONG else self._row_table()

  def _form(self):
    if self._time_column() is not None:
      return LONG
    ids = self._ids()
    repeats = ids is not None and ids.duplicated().any()
    return LONG if repeats else ROWS

  def _ids(self):
    """Returns the column of ids as text, or None."""
    if self._own.id in self._columns:
      return self._frame.iloc[:, self._columns.index(self._own.id)].astype(str)
    return (
      self._lacks('id', self._own.id) if self._own.id != tables.ID else None
    )

  def _labels(self):
    """Returns the label of each row as text, or None."""
    if self._own.label not in self._columns:
      return None
    column = self._frame.iloc[:, self._columns.index(self._own.label)]
    return [_text(x) for x in column.to_numpy(object)]

  def _others(self, used):
    """Returns the columns that aren't used."""
    return tuple(name for name in self._columns if name not in used)

  def _long_table(self):
    import pandas as pd  # takes long to import

    own, time, ids = self._own, self._time_column(), self._ids()
    times_N, dated = (None, False) if time is None else self._times(time)
    named = None if time is None else self._columns[time]
    channels = own.channels or self._others((own.id, named, own.label))
    if not channels:
      self._lacks('channels', ())
    for channel in channels:
      if channel not in self._columns:
        self._lacks('channels', channel)
    columns = [self._numbers(self._columns.index(x)) for x in channels]
    values_NxC = np.stack(columns, 1)
    labels = self._labels()
    if ids is None:
      stem = os.path.splitext(os.path.basename(self._file))[0]
      unique = [stem if self._lines_N[0] else tables.VALUE]
      rows = [np.arange(len(self._lines_N))]
    else:
      codes_N, unique = pd.factorize(ids)
      order = np.argsort(codes_N, kind='stable')
      rows = np.split(order, np.cumsum(np.bincount(codes_N))[:-1])
    series = []
    for name, at in zip(unique, rows, strict=True):
      place = None if times_N is None else times_N[at]
      raw = self._raw(
        str(name), place, dated, values_NxC[at], self._lines_N[at]
      )
      made = labelled.Series(
        str(name),
        raw.values_NxT,
        None if labels is None else [labels[n] for n in at],
        None if place is None else [fields.shown(int(x), dated) for x in place],
        raw.where(0),
      )
      series.append(_checked(made, padded=False))
    return Read(series, channels, LONG)

  def _row_table(self):
    own, ids = self._own, self._ids()
    columns = self._others((own.id, own.label))
    channels = own.channels or (tables.VALUE,)
    if len(channels) > 1:
      errors.refuse(
        f'{own.key}channels',
        channels,
        f'{self._file} has a series in each row, of one channel: write a long '
        f'table, {own.id},{own.time},{",".join(channels[:SHOWN])}',
      )
    if not columns:
      raise errors.InputError(f'{self._file}: it has no readings: give columns')
    values_NxL = np.stack(
      [self._numbers(self._columns.index(x)) for x in columns], 1
    )
    stem = os.path.splitext(os.path.basename(self._file))[0]
    prefix = f'{stem}-' if self._lines_N[0] else ''
    labels, series = self._labels(), []
    for n, values_L in enumerate(values_NxL):
      name = f'{prefix}{n}' if ids is None else ids.iloc[n]
      raw = self._raw(
        name,
        None,
        False,
        values_L[:, None],
        np.full(len(values_L), self._lines_N[n]),
      )
      made = labelled.Series(
        name,
        raw.values_NxT,
        None if labels is None else [labels[n]],
        None,
        raw.where(0),
      )
      series.append(_checked(made))
    names = [each.name for each in series]
    if len({*names}) < len(names):
      twice = next(x for x in names if names.count(x) > 1)
      raise errors.InputError(
        f'{self._file}: series {twice!r} is in two rows: give each a name of '
        "its own, or table='long'"
      )
    return Read(series, channels, ROWS)


def _checked(series, padded=True):
  """Returns a series, without its end where that may be padding.

  Raises:
    InputError: it has no reading, or an infinite one.
  """
  values_LxC = series.values_LxC
  if np.isinf(values_LxC).any():
    raise errors.InputError(
      f'{series.where}: series {series.name!r} has an infinite reading: give a '
      'finite number, or leave it empty'
    )
  seen = np.flatnonzero(~np.isnan(values_LxC).all(1))
  if not len(seen):
    raise errors.InputError(
      f'{series.where}: all readings of series {series.name!r} are missing: '
      'give one or more, or leave it out'
    )
  if not padded:
    return series
  end = int(seen[-1]) + 1
  labels = series.labels
  if labels is not None and len(labels) == len(values_LxC) > 1:
    labels = labels[:end]
  return series._replace(values_LxC=values_LxC[:end], labels=labels)


def _text(value):
  """Returns a label as text; '': it is missing."""
  if isinstance(value, (float, np.floating)) and np.isfinite(value):
    value = int(value) if value == int(value) else float(value)
  text = str(value).strip()
  return '' if text.lower() in fields.MISSING else text


def _shown(channels):
  more = ', ...' if len(channels) > SHOWN else ''
  return f'{", ".join(map(repr, channels[:SHOWN]))}{more}'


def columns(read: Read) -> Mapping[str, np.ndarray]:
  """Returns all readings of each channel."""
  together = np.concatenate([each.values_LxC for each in read.series])
  return dict(zip(read.channels, together.T, strict=True))
