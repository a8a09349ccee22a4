"""Series of numbers from tables: CSV, Parquet and .npz files.

    python -m launch.train --config=configs/forecasting.py \\
        --config.data.path=load.csv --workdir=runs/load

How tables are read is in rnn_jax/data/series/tables.py. The last horizons of
each series are held out, `data.held_out` of them for validation and test:

    | train                      | validation | test |

unless data.validation_path or data.test_path has the readings that follow.
A series is scaled by its training part. What the config leaves open follows
from the tables: the frequency, and from it the season, the horizon and the
window.
"""

import dataclasses
import functools
import os
import typing

import numpy as np
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.series import covariates
from rnn_jax.data.series import documents as series_lib
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import scaling
from rnn_jax.data.series import table_files
from rnn_jax.data.series import tables
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents

WINDOW = 4  # seasons, without a given window
MIN_WINDOW, MAX_WINDOW = 16, 336


@dataclasses.dataclass(frozen=True)
class Config(base.Files):
  """Options of the source, of section `data` of the config."""

  # Long, wide with a series in each column, or in each row.
  table: str = config_lib.option('auto', choices='data.series.tables:KINDS')
  id: str = tables.ID  # column of a series' name
  time: str = tables.TIME  # column of times
  value: str = tables.VALUE  # column of readings
  # Columns of readings that are read and forecast together, in place of it.
  targets: tuple[str, ...] = ()
  frequency: str = ''  # of readings, as 'h' or '15min'; '': by their times
  season: int = config_lib.option(0, minimum=0)  # readings; 0: by frequency
  # Readings to forecast, and that each step sees at once; 0: by frequency.
  horizon: int = config_lib.option(0, minimum=0, maximum=10_000)
  window: int = config_lib.option(0, minimum=0, maximum=10_000)
  scaling: str = config_lib.option(
    'window', choices='data.text.tokenizer:SCALINGS'
  )
  log: bool = False  # scale logarithms
  held_out: tuple[int, int] = (1, 1)  # horizons, for validation and test
  # Readings from one held-out forecast that is scored to the next; 0: horizon.
  origins_every: int = config_lib.option(0, minimum=0)
  # Columns of covariates: known ahead, known up to now, and of a whole series.
  known: tuple[str, ...] = ()
  observed: tuple[str, ...] = ()
  static: tuple[str, ...] = ()
  # Those of `static` that are categories; empty: those with texts.
  categories: tuple[str, ...] = config_lib.option((), needs='data.static')
  # How many values each has; empty: those of the table.
  category_sizes: tuple[int, ...] = config_lib.option((), needs='data.static')

  holds_series: typing.ClassVar[bool] = True

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    if min(self.held_out) < 0:
      errors.refuse('data.held_out', self.held_out, 'give 0 or more horizons')
    frequency_lib.Frequency.parse(self.frequency)
    if self.log and self.scaling == 'counts':
      errors.refuse(
        'data.log', True, "data.scaling='counts' isn't scaled: leave it out"
      )
    covariates.check(self)

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the frequency, and what follows from it.

    Raises:
      InputError: a table can't be read, or it doesn't show the frequency.
    """
    del task
    panel, _ = _panel(self)
    frequency = panel.frequency
    season = self.season or frequency.season
    window = min(max(WINDOW * season, MIN_WINDOW), max(MAX_WINDOW, season))
    categories, sizes = self._categories(panel)
    return dataclasses.replace(
      self,
      tokenizer='scales',
      frequency=str(frequency) if panel.dated else '',
      season=season,
      horizon=self.horizon or frequency.horizon,
      window=self.window or window,
      categories=categories,
      category_sizes=sizes,
    )

  def _categories(self, panel):
    """Returns the names of categories, and how many values each has."""
    texts = {
      name: [each.static[n] for each in panel.series]
      for n, name in enumerate(self.static)
    }
    names = self.categories or tuple(
      name for name in self.static if covariates.is_category(texts[name])
    )
    for name in self.static:
      if name not in names and covariates.is_category(texts[name]):
        errors.refuse(
          'data.categories',
          names,
          f'data.static has {name!r}, not all of whose values are numbers: add '
          'it',
        )
    names = tuple(name for name in self.static if name in names)
    sizes = tuple(len(covariates.entries(texts[name])) for name in names)
    if self.category_sizes not in ((), sizes):
      errors.refuse(
        'data.category_sizes',
        self.category_sizes,
        f'{names!r} have {sizes!r} values: leave it out',
      )
    return names, sizes

  @property
  def widths(self) -> tuple[int, int, int]:
    """The widths of a batch's readings, calendar and future: W, F and H."""
    calendar = frequency_lib.Frequency.parse(self.frequency).features
    count = len(self.readings)
    return count * self.window, calendar, count * self.horizon

  @property
  def readings(self) -> tuple[str, ...]:
    """The columns of readings: T targets, one or more."""
    return self.targets or (self.value,)

  @property
  def covariate_widths(self) -> tuple[int, int, int, int] | None:
    """The widths of a batch's covariates, H, K, C and S, if there are any."""
    named = covariates.columns(self)
    return None if named is None else (self.horizon, *named.widths)

  def table_options(self, key: str = 'data.') -> tables.Options:
    """Returns how tables are read; `key` begins the names in messages."""
    return tables.Options(
      self.table,
      self.id,
      self.time,
      self.value,
      key,
      self.known,
      self.observed,
      self.static,
      counts=self.scaling == 'counts',
      positive=self.log,
      targets=self.targets,
    )


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the series of each split; of the held-out ones with their past.

  Raises:
    InputError: a table can't be read, or no series is long enough to train on.
  """
  panel, ends = _panel(data)
  parts: dict[str, tuple[list[panel_lib.Series], list[int]]] = {
    name: ([], []) for name in documents.SPLITS
  }
  fitted, trained, counts, short = {}, [], [], 0
  for series, given in zip(panel.series, ends, strict=True):
    train, validation, test = _cuts(len(series.values_NxT), given, data)
    if not _trains(series.values_NxT[:train]):
      short += 1
      continue
    scale = scaling.of_targets(
      data.scaling, data.log, series.values_NxT[:train]
    )
    pairs_Tx2 = np.stack([scale.loc, scale.scale], 1)
    fitted[series.name] = pairs_Tx2.ravel().tolist()
    trained.append(series)
    counts.append(train)
    for split, end, begin in (
      ('train', train, 0),
      ('validation', validation, train),
      ('test', test, validation),
    ):
      if end > begin and not np.isnan(series.values_NxT[begin:end]).all():
        cut = series._replace(
          values_NxT=series.values_NxT[:end],
          covariates_MxC=series.covariates_MxC[:end],
        )
        parts[split][0].append(cut)
        parts[split][1].append(begin)
  if not fitted:
    errors.refuse(
      'data.held_out',
      data.held_out,
      f'none of {len(panel.series)} series has two readings or more besides '
      f'horizons of {data.horizon}: give a smaller data.horizon, or hold out '
      'less',
    )
  if short:
    logging.warning(
      'data.path=%r: %s of %s series are left out: they have fewer than two '
      'readings to train on, besides what is held out',
      data.path,
      f'{short:,}',
      f'{len(panel.series):,}',
    )
  spec = {
    'kind': 'scales',
    'scaling': data.scaling,
    'log': data.log,
    'fitted': fitted,
    **covariates.fit(trained, counts, data),
  }
  files = _paths(data)
  return {
    name: documents.whole(
      series_lib.InMemorySeries(series, begins, files, spec)
    )
    for name, (series, begins) in parts.items()
  }


def open_file(path: str, key: str, data: typing.Any) -> documents.Documents:
  """Returns the series of a file, of each of which the end is forecast.

  Args:
    path: the file, glob or folder.
    key: what names it in messages.
    data: section `data` of a run; its last horizon is held out.

  Raises:
    InputError: it can't be read, or a series isn't longer than the horizon.
  """
  raws = tables.read(path, key, data.table_options())
  panel = panel_lib.of(raws, data.frequency, 'data.frequency')
  if data.known:
    panel = panel_lib.up_to_last_reading(panel)
  begins = []
  for each in panel.series:
    begins.append(len(each.values_NxT) - data.horizon)
    if begins[-1] < 1 or np.isnan(each.values_NxT[: begins[-1]]).all():
      errors.refuse(
        key,
        path,
        f'series {each.name!r} has no reading before its last {data.horizon}: '
        'give a longer one',
      )
  return documents.whole(
    series_lib.InMemorySeries(panel.series, begins, table_files.files(path))
  )


def _trains(values_NxT):
  """Returns whether each target has two readings or more."""
  return np.sum(~np.isnan(values_NxT), 0).min() > 1


def _cuts(length, given, data):
  """Returns where the parts of a series end.

  `given` are the readings up to data.validation_path's and data.test_path's.
  """
  of_validation, of_test = (n * data.horizon for n in data.held_out)
  train, validation = given
  if not data.test_path:
    validation = length - of_test
  if not data.validation_path:
    train = validation - of_validation
  return max(train, 0), max(validation, 0), length


def _panel(data):
  """Returns the series of all files, and where each file's part ends."""
  return _read(
    tuple(_paths(data)),
    (bool(data.validation_path), bool(data.test_path)),
    data.table_options(),
    data.frequency,
    _stamps(data),
  )


@functools.lru_cache(maxsize=1)
def _read(paths, has, options, frequency, stamps):
  del stamps  # files that change are read again
  keys = ['data.path']
  keys += ['data.validation_path'] * has[0] + ['data.test_path'] * has[1]
  parts = [
    tables.read(path, key, options)
    for path, key in zip(paths, keys, strict=True)
  ]
  panel = panel_lib.of(panel_lib.joined(parts), frequency, 'data.frequency')
  if options.known:
    panel = panel_lib.up_to_last_reading(panel)
  ends = {}
  for upto in range(1, len(parts) + 1):
    for raw in panel_lib.joined(parts[:upto]):
      place = len(raw.values_NxT)
      if raw.times_N is not None:
        start, last = int(raw.times_N[0]), raw.times_N[-1:]
        place = int(panel.frequency.places(start, last)[0]) + 1
      ends.setdefault(raw.name, []).append(place)
  cuts = []
  for series in panel.series:
    own = ends[series.name]
    train = own[0]
    validation = own[1] if has[0] else own[0]
    cuts.append((train, validation))
  return panel, cuts


def _paths(data):
  given = data.path, data.validation_path, data.test_path
  return [data.path, *filter(None, given[1:])]


def _stamps(data):
  """Returns what changes when a file does."""
  found = []
  for path in _paths(data):
    for file in table_files.files(path):
      status = os.stat(file)
      found.append((file, status.st_mtime_ns, status.st_size))
  return tuple(found)
