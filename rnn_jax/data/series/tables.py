"""Series from tables: long, wide by columns, wide by rows; CSV, Parquet, npz.

    long      unique_id,ds,y      a reading in each row; without an id a file,
                                  or a glob's each file, is one series
    columns   ds,load,wind        a time in each row, a series in each column
    rows      id,v1,v2,...        a series in each row, padded with empty fields

A long table may have covariates (covariates.py): a column each, and one value
a series in a static column. A table of the future has those that are known.

An .npz has an array of one axis for each series, named by it. pandas reads the
tables and the times. A field is empty, or NA, NaN, null or none, where a
reading is missing; nothing is filled in. What can't be a reading or a time is
refused with its file and line.
"""

import os
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import fields
from rnn_jax.data.series import table_files

KINDS = 'auto', 'long', 'columns', 'rows'
ID, TIME, VALUE = 'unique_id', 'ds', 'y'
TIMES = TIME, 'date', 'datetime', 'timestamp', 'time'  # usual names
SHOWN = 8  # columns in a message


class Options(NamedTuple):
  """How a table is read; the keys of section `data`."""

  table: str = 'auto'
  id: str = ID
  time: str = TIME
  value: str = VALUE
  key: str = 'data.'  # before the names of these, in messages
  known: tuple[str, ...] = ()
  observed: tuple[str, ...] = ()
  static: tuple[str, ...] = ()
  future: bool = False  # of these, only what is known ahead is read
  counts: bool = False  # readings are whole numbers from 0 on
  positive: bool = False  # readings have logarithms
  targets: tuple[str, ...] = ()  # columns in place of `value`


DEFAULT = Options()
NO_COVARIATES = np.zeros((0, 0))


class Raw(NamedTuple):
  """A series as its table has it.

  Attributes:
    name: of the series.
    times_N: int64, nanoseconds since 1970 or an integer column's numbers; None:
      the table has no times.
    dated: whether these are nanoseconds.
    values_NxT: float64, a column for each target; NaN is missing.
    file: that it is from.
    lines_N: of the file, of each reading; None: there are none.
    covariates_NxC: float64, the known and the observed ones; NaN is missing.
    static: the text of each static column; '': it is missing.
  """

  name: str
  times_N: np.ndarray | None
  dated: bool
  values_NxT: np.ndarray
  file: str
  lines_N: np.ndarray | None
  covariates_NxC: np.ndarray = NO_COVARIATES
  static: tuple[str, ...] = ()

  def where(self, n: int) -> str:
    """Returns the place of reading `n`, for messages."""
    if self.lines_N is None:
      return f'{self.file}: series {self.name!r}, reading {n + 1}'
    return f'{self.file}:{self.lines_N[n]}'


def read(path: str, key: str, options: Options = DEFAULT) -> list[Raw]:
  """Returns the series of a file, or of the files of a glob or a folder.

  Args:
    path: the file, glob or folder.
    key: what names it in messages, such as 'data.path'.
    options: how they are read.

  Raises:
    InputError: there is no such file, or it isn't a table of numbers; names the
      file, the line and the remedy.
  """
  series: list[Raw] = []
  for file in table_files.existing(path, key):
    series += _read_file(file, key, options)
  names: dict[str, Raw] = {}
  for each in series:
    if each.name in names:
      raise errors.InputError(
        f'{each.where(0)}: series {each.name!r} is in '
        f'{names[each.name].where(0)}, too: give each a name of its own'
      )
    names[each.name] = each
  return series


def of_frame(frame: Any, options: Options) -> list[Raw]:
  """Returns the series of a DataFrame, an array, or a dict of arrays.

  Args:
    frame: a pandas DataFrame, or another with `to_pandas`; an array of one axis
      is a series 'y', one of two has a series in each row. With targets arrays
      have an axis more, the last one, of these.
    options: how a table is read.

  Raises:
    InputError: as `read`; a place is the row's number.
  """
  import pandas as pd  # takes long to import

  if isinstance(frame, dict):
    return _of_arrays(frame, 'the dict', options)
  if isinstance(frame, (np.ndarray, list, tuple)):
    array = np.asarray(frame)
    axes = 1 + bool(options.targets)
    if array.ndim == axes:
      return _of_arrays({VALUE: array}, 'the array', options)
    if array.ndim == axes + 1:
      rows = {f'y{n}': x for n, x in enumerate(array)}
      return _of_arrays(rows, 'the array', options)
    errors.refuse(
      'frame.ndim', array.ndim, f'give an array of {axes} or {axes + 1} axes'
    )
  if isinstance(frame, pd.Series):
    frame = frame.to_frame(VALUE).rename_axis(TIME).reset_index()
  if hasattr(frame, 'to_pandas') and not isinstance(frame, pd.DataFrame):
    frame = frame.to_pandas()
  if not isinstance(frame, pd.DataFrame):
    raise errors.InputError(
      f'frame={type(frame).__name__}: give a DataFrame, an array, or a dict of '
      'arrays'
    )
  file = 'the future' if options.future else 'the frame'
  return Table(frame, file, 0, options).series()


def _read_file(file, key, options):
  if file.lower().endswith('.npz'):
    return _of_arrays(table_files.read_npz(file), file, options)
  return Table(*table_files.read_frame(file), options).series()


def _of_arrays(arrays, file, options):
  for role in ('known', 'observed', 'static'):
    if names := getattr(options, role):
      errors.refuse(
        f'{options.key}{role}',
        names,
        f'{file} has readings only: give a long table, {ID},{TIME},{VALUE}, '
        'with these columns',
      )
  series, width = [], len(options.targets)
  for name, given in arrays.items():
    array = np.asarray(given)
    fits = array.shape[1:] == ((width,) if width else ())
    if not array.ndim or not fits or array.dtype.kind not in 'fiub':
      raise errors.InputError(
        f'{file}: {name!r} is {array.dtype} {list(array.shape)}: give an array '
        'of numbers of '
        + (f'readings x {width} targets' if width else 'one axis')
      )
    values_NxT = array.astype(np.float64).reshape(len(array), -1)
    raw = Raw(str(name), None, False, values_NxT, file, None)
    series.append(_checked(raw, options))
  if not series:
    raise errors.InputError(f'{file}: it has no series: give one or more')
  return series


class Table:
  """A table and the place of its rows.

  Args:
    frame: the table, of strings or of pandas' types.
    file: that it is from.
    first: the line of the first row.
    options: how it is read.
  """

  def __init__(
    self, frame: Any, file: str, first: int, options: Options
  ) -> None:
    self._frame, self._file, self._options = frame, file, options
    self._columns = [str(name) for name in frame.columns]
    self._lines_N = np.arange(len(frame)) + first
    table_files.check_names(self._columns, file)
    if not len(frame):
      raise errors.InputError(f'{file}: it has no rows: give readings')

  def series(self) -> list[Raw]:
    """Returns the series."""
    kind = self._options.table
    if kind == 'auto':
      kind = self._kind()
    return {'long': self._long, 'columns': self._wide, 'rows': self._rows}[
      kind
    ]()

  def _kind(self):
    options = self._options
    covariates = options.known + options.observed + options.static
    if options.value in self._columns or covariates or options.targets:
      return 'long'
    if self._time_column() is not None:
      return 'columns'
    if len(self._columns) > 2:
      return 'rows'
    return self._lacks('value', options.value)

  def _lacks(self, option, name):
    shown = self._columns[:SHOWN]
    more = ', ...' if len(self._columns) > SHOWN else ''
    raise errors.InputError(
      f'{self._options.key}{option}={name!r}: {self._file} has the columns '
      f'{", ".join(map(repr, shown))}{more}: name the one that has it'
    )

  def _time_column(self):
    """Returns the number of the column of times, or None."""
    names = [x.lower() for x in self._columns]
    wanted = self._options.time
    if wanted in self._columns:
      return self._columns.index(wanted)
    if wanted != TIME:
      return self._lacks('time', wanted)
    return next((names.index(x) for x in TIMES if x in names), None)

  def _long(self):
    import pandas as pd  # takes long to import

    options = self._options
    time = self._time_column()
    times_N, dated = (None, False) if time is None else self._times(time)
    values_NxT = self._readings()
    covariates_NxC = self._covariates()
    statics = [] if options.future else [*map(self._static, options.static)]
    if options.id in self._columns:
      names = self._frame.iloc[:, self._columns.index(options.id)].astype(str)
      codes_N, unique = pd.factorize(names)
      rows = [np.flatnonzero(codes_N == n) for n in range(len(unique))]
      if len(unique) > 64:
        order = np.argsort(codes_N, kind='stable')
        rows = np.split(order, np.cumsum(np.bincount(codes_N))[:-1])
    elif options.id != ID:
      self._lacks('id', options.id)
    else:
      stem = os.path.splitext(os.path.basename(self._file))[0]
      unique = [stem if self._lines_N[0] else VALUE]
      unique = [''] if options.future else unique
      rows = [np.arange(len(values_NxT))]
    return [
      _checked(
        Raw(
          str(name),
          None if times_N is None else times_N[own],
          dated,
          values_NxT[own],
          self._file,
          self._lines_N[own],
          covariates_NxC[own],
          tuple(self._one(static, own, str(name)) for static in statics),
        ),
        options,
      )
      for name, own in zip(unique, rows, strict=True)
    ]

  def _readings(self):
    """Returns the columns of readings, NxT."""
    options = self._options
    names = options.targets or (options.value,)
    if options.future:
      return np.full((len(self._frame), len(names)), np.nan)
    for name in names:
      if name not in self._columns:
        self._lacks('targets' if options.targets else 'value', name)
    return np.stack([self._numbers(self._columns.index(x)) for x in names], 1)

  def _covariates(self):
    """Returns the known and the observed columns, NxC."""
    options = self._options
    columns = []
    for role, names in (
      ('known', options.known),
      ('observed', options.observed),
    ):
      for name in names:
        if options.future and role == 'observed':
          columns.append(np.full(len(self._frame), np.nan))
        elif name in self._columns:
          columns.append(self._numbers(self._columns.index(name)))
        else:
          self._lacks(role, name)
    return np.stack(columns, 1) if columns else np.zeros((len(self._frame), 0))

  def _static(self, name):
    """Returns (a column's name, its codes, their texts); -1 is missing."""
    import pandas as pd  # takes long to import

    if name not in self._columns:
      self._lacks('static', name)
    column = self._frame.iloc[:, self._columns.index(name)]
    codes_N, unique = pd.factorize(column)
    texts = [*map(fields.text, unique)]
    missing = np.array([-1, *(-1 if x == '' else 0 for x in texts)])
    return name, np.where(missing[codes_N + 1] < 0, -1, codes_N), texts

  def _one(self, static, own, series):
    """Returns the text that a series has in a static column."""
    column, codes_N, texts = static
    place_N = own[codes_N[own] >= 0]
    if not len(place_N):
      return ''
    first = texts[codes_N[place_N[0]]]
    for place in place_N[codes_N[place_N] != codes_N[place_N[0]]]:
      if (other := texts[codes_N[place]]) != first:
        raise errors.InputError(
          f'{self._where(place)}: series {series!r} has '
          f'{other[:40]!r} in the static column {column!r}, and {first[:40]!r} '
          f'in line {self._lines_N[place_N[0]]}: give one value a series'
        )
    return first

  def _wide(self):
    if (time := self._time_column()) is None:
      time = 0
    times_N, dated = self._times(time)
    return [
      self._raw(name, times_N, dated, self._numbers(n)[:, None], self._lines_N)
      for n, name in enumerate(self._columns)
      if n != time
    ]

  def _rows(self):
    names = self._frame.iloc[:, 0].astype(str)
    values_NxL = np.stack(
      [self._numbers(n) for n in range(1, len(self._columns))], 1
    )
    series = []
    for name, line, values_L in zip(
      names, self._lines_N, values_NxL, strict=True
    ):
      seen = np.flatnonzero(~np.isnan(values_L))
      length = seen[-1] + 1 if len(seen) else 0
      values_Lx1, lines_L = values_L[:length, None], np.full(length, line)
      series.append(self._raw(name, None, False, values_Lx1, lines_L))
    return series

  def _raw(self, name, times_N, dated, values_NxT, lines_N):
    raw = Raw(name, times_N, dated, values_NxT, self._file, lines_N)
    return _checked(raw, self._options)

  def _numbers(self, n):
    return fields.numbers(self._frame.iloc[:, n], self._columns[n], self._where)

  def _times(self, n):
    return fields.times(self._frame.iloc[:, n], self._columns[n], self._where)

  def _where(self, row):
    return f'{self._file}:{self._lines_N[row]}'


def _checked(raw, options):
  """Returns a series without infinities, and whose times ascend.

  Raises:
    InputError: it has; counts aren't, or what needs a logarithm has none; or
      a time is twice there, or not in order.
  """
  x = raw.values_NxT
  with np.errstate(invalid='ignore'):  # of infinities, which are refused first
    no_count = options.counts & ((x < 0) | (x % 1 > 0))
  for wrong_NxT, remedy in (
    (np.isinf(x), ': give a finite number, or leave the field empty'),
    (
      no_count,
      ', which is no count: give whole numbers from 0 on, or train with '
      "data.scaling='window' and task.head='quantiles'",
    ),
    (
      options.positive & (x <= 0),
      ', which has no logarithm: give positive numbers, or train with '
      'data.log=False',
    ),
  ):
    for n, target in np.argwhere(wrong_NxT):
      raise errors.InputError(
        f'{raw.where(n)}: series {raw.name!r} has {x[n, target]:g}{remedy}'
      )
  names = options.known + options.observed
  for n, column in np.argwhere(np.isinf(raw.covariates_NxC)):
    raise errors.InputError(
      f'{raw.where(n)}: column {names[column]!r} has '
      f'{raw.covariates_NxC[n, column]}: give a finite number, or leave the '
      'field empty'
    )
  if raw.times_N is None:
    return raw
  apart_N = np.diff(raw.times_N)
  wrong = np.flatnonzero(apart_N <= 0)
  if len(wrong):
    n = int(wrong[0]) + 1
    time = fields.shown(int(raw.times_N[n]), raw.dated)
    if apart_N[n - 1]:
      raise errors.InputError(
        f'{raw.where(n)}: series {raw.name!r} has {time} after a later time: '
        f'sort its rows by time'
      )
    raise errors.InputError(
      f'{raw.where(n)}: series {raw.name!r} has {time} twice, also in '
      f'{raw.where(n - 1)}: keep one of them'
    )
  return raw


def names_of(raws: Sequence[Raw]) -> list[str]:
  """Returns the names of series."""
  return [raw.name for raw in raws]
