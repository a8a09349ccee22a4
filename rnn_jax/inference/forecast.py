"""Forecasts of series, and streams that take one reading at a time.

A history and a single reading run the same steps, and series that are read
together have the bits that each has by itself (series_rows.py): a stream
equals, bit for bit, the series read from its start. A series is scaled
by what the run has kept for its name, or else by the history that it begins
with, which the stream keeps. Quantiles are float64.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import covariates as series_covariates
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import scaling
from rnn_jax.data.series import tables
from rnn_jax.inference import covariates as covariates_lib
from rnn_jax.inference import forecast_rows
from rnn_jax.inference import paths
from rnn_jax.inference import readings as readings_lib
from rnn_jax.inference import series_rows
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import activity

NOTHING = np.zeros((0, 0))
TIMES = 4096  # forecasts whose times are kept as text; many begin together


class Stream(NamedTuple):
  """A series that was read up to now; a value, which `observe` leaves as it is.

  Attributes:
    name: of the series.
    start: the time of its first reading, see data/series/frequency.py.
    count: readings so far, missing ones included.
    scale: of its readings.
    carry: what the model keeps, whose size doesn't depend on `count`.
    numbers_OxH: the head's, in readings before a logarithm was inverted; of
      several targets one after the other.
    covariates: of the last season, and what is known ahead; None: the run has
      none.
  """

  name: str
  start: int
  count: int
  scale: scaling.Scale
  carry: series_rows.Carry
  numbers_OxH: np.ndarray
  covariates: series_covariates.Scaled | None = None


class Sampling(NamedTuple):
  """How many paths of readings are drawn; 0: none."""

  samples: int = 0
  seed: int = 0


class Forecaster:
  """A trained forecaster.

  Args:
    bundle: of the run.

  Raises:
    InputError: the run forecasts nothing.
  """

  def __init__(self, bundle: bundle_lib.Bundle) -> None:
    check_forecasts(bundle.config)
    self._data: Any = bundle.config.data
    self._scales: Any = bundle.tokenizer
    self.covariates = covariates_lib.Covariates(self._data, self._scales)
    task = bundle_lib.make_task(bundle.config, bundle.tokenizer)
    params = packed_weights.unpack(bundle.params)
    self.reader = series_rows.Reader(
      task.model, jax.device_put(params, jax.local_devices()[0])
    )
    self.levels: tuple[float, ...] = bundle.config.task.quantiles
    self.horizon: int = self._data.horizon
    self.targets: tuple[str, ...] = self._data.targets
    self.readings = readings_lib.Readings(self._data)
    self._head = task.model.bind({}).numbers
    self.frequency = frequency_lib.Frequency.parse(self._data.frequency)

  def check(
    self,
    horizon: int,
    levels: Sequence[float],
    sampling: Sampling = Sampling(),  # noqa: B008, frozen
  ) -> None:
    """Checks what is asked of a forecast.

    Raises:
      InputError: a horizon beyond the trained one, of what isn't drawn; levels
        that the head doesn't know; or paths that can't be drawn.
    """
    if sampling.samples:
      self._check_sampling(horizon, sampling)
    elif not 1 <= horizon <= self.horizon:
      longer = ', or draw paths of any length by samples=100'
      errors.refuse(
        'horizon',
        horizon,
        f'this model forecasts {self.horizon} readings: give 1 to '
        f'{self.horizon}, or train with a larger data.horizon'
        f'{longer if self._head.draws else ""}',
      )
    given = tuple(levels)
    if not given or list(given) != sorted({*given}):
      errors.refuse('quantiles', given, 'give ascending levels')
    low, high = 0.0, 1.0
    if self._head.kind == 'quantiles':
      low, high = self.levels[0], self.levels[-1]
      if not low <= given[0] <= given[-1] <= high:
        errors.refuse(
          'quantiles',
          given,
          f'this model has learned {self.levels}: give levels from {low} to '
          f"{high}, or train with task.head='student_t'",
        )
    elif not low < given[0] <= given[-1] < high:
      errors.refuse('quantiles', given, 'give levels between 0 and 1')

  def _check_sampling(self, horizon, sampling):
    samples, seed = sampling
    if self.targets:
      errors.refuse(
        'samples',
        samples,
        f'paths of data.targets={self.targets!r} are not drawn: leave it out',
      )
    if not self._head.draws:
      errors.refuse(
        'samples',
        samples,
        f'task.head={self._head.kind!r} has no distribution to draw from: '
        "train with 'student_t' or 'negative_binomial'",
      )
    if self._data.observed:
      errors.refuse(
        'samples',
        samples,
        f'a drawn reading has no data.observed={self._data.observed!r}: train '
        'without them',
      )
    for key, value, least, most in (
      ('samples', samples, 1, paths.MAX_PATHS),
      ('seed', seed, 0, 2**64 - 1),
      ('horizon', horizon, 1, paths.MAX_HORIZON),
    ):
      if not least <= value <= most:
        errors.refuse(key, value, f'give {least} to {most:,}')

  def panel(self, frame: Any, future: Any = None) -> panel_lib.Panel:
    """Returns the series of a frame, an array or a dict of arrays.

    Args:
      frame: the readings so far.
      future: a frame of what is known of the times after them, or None.

    Raises:
      InputError: it can't be read, has other times than the run, or lacks a
        covariate.
    """
    raws = tables.of_frame(frame, self._data.table_options(''))
    if future is not None:
      options = self.covariates.future_options('future')
      raws = covariates_lib.joined(raws, tables.of_frame(future, options))
    return self.on_grid(raws)

  def read_file(self, path: str, key: str, future: str = '') -> panel_lib.Panel:
    """Returns the series of a file, a glob or a folder; see `panel`.

    Raises:
      InputError: as `panel`.
    """
    raws = tables.read(path, key, self._data.table_options())
    if future:
      options = self.covariates.future_options('--future')
      ahead = tables.read(future, '--future', options)
      raws = covariates_lib.joined(raws, ahead)
    return self.on_grid(raws)

  def on_grid(self, raws: list[tables.Raw]) -> panel_lib.Panel:
    """Returns series at the run's frequency.

    Raises:
      InputError: they have other times than the run, or lack what is known.
    """
    if bool(self._data.frequency) != raws[0].dated:
      raise errors.InputError(
        f'{raws[0].file} has {"" if raws[0].dated else "no "}dates, and the '
        f'run was trained {"with" if self._data.frequency else "without"} '
        f'them (data.frequency={self._data.frequency!r}): give the same kind'
      )
    panel = panel_lib.of(raws, self._data.frequency, 'data.frequency')
    return self.covariates.split(panel)

  def begin(self, series: panel_lib.Series) -> Stream:
    """Returns the stream of a series that was read up to its end.

    Raises:
      InputError: it has no reading, lacks covariates, or as `observe`.
    """
    return self.begin_all([series])[0]

  def begin_all(self, series: Sequence[panel_lib.Series]) -> list[Stream]:
    """Returns the streams of series, each as of `begin`.

    Raises:
      InputError: as `begin`.
    """
    values = [each.values_NxT for each in series]
    return self.read_all([*map(self.empty, series)], values)

  def empty(self, series: panel_lib.Series) -> Stream:
    """Returns the stream of a series of which nothing was read yet.

    Raises:
      InputError: as `begin`.
    """
    values_NxT = series.values_NxT
    if np.isnan(values_NxT).all():
      raise errors.InputError(
        f'series {series.name!r} has no reading: give one or more'
      )
    with np.errstate(over='ignore'):  # what is too large is refused below
      scale = scaling.of(self._scales, series.name, values_NxT)
    covariates = self.covariates.begin(series)
    carry = self.reader.fresh
    stream = Stream(
      series.name, series.start, 0, scale, carry, NOTHING, covariates
    )
    self.readings.check(values_NxT, scale, series.name)
    return stream

  def observe(
    self,
    stream: Stream,
    reading: readings_lib.Reading,
    known: covariates_lib.Given = covariates_lib.NONE,
    observed: covariates_lib.Given = covariates_lib.NONE,
  ) -> Stream:
    """Returns a stream with one more reading; NaN: it is missing.

    Args:
      stream: the series so far.
      reading: the next one, of several targets a list.
      known: by column, numbers of the times after those whose are known.
      observed: by column, the number at the reading; NaN: it is missing.

    Raises:
      InputError: the reading is infinite, has no logarithm or is no count, or
        the columns aren't the run's.
    """
    return self.observe_all([stream], [reading], [known], [observed])[0]

  def observe_all(
    self,
    streams: Sequence[Stream],
    readings: Sequence[readings_lib.Reading],
    known: Sequence[covariates_lib.Given] | None = None,
    observed: Sequence[covariates_lib.Given] | None = None,
  ) -> list[Stream]:
    """Returns streams with one more reading each, as of `observe`.

    Raises:
      InputError: as `observe`.
    """
    if not streams:
      return []
    known = [covariates_lib.NONE] * len(streams) if known is None else known
    observed = (
      [covariates_lib.NONE] * len(streams) if observed is None else observed
    )
    values_BxT = self.readings.numbers(readings)
    wrong_BxT = self.readings.wrong(values_BxT, scales(streams))
    for n in np.flatnonzero(wrong_BxT.any(1)):
      stream = streams[n]
      self.readings.check(values_BxT[n : n + 1], stream.scale, stream.name)
    if self.covariates.like is not None or any(known) or any(observed):
      streams = [
        stream._replace(covariates=self.covariates.observe(stream, *given))
        for stream, *given in zip(streams, known, observed, strict=True)
      ]
    return self.read_all(streams, values_BxT[:, None])  # one of each

  def given(
    self, streams: Sequence[Stream], values: Sequence[np.ndarray]
  ) -> series_rows.Rows:
    """Returns what the model reads.

    Args:
      streams: that the readings follow.
      values: the readings of each, NxT.
    """
    count_B = np.array([*map(len, values)])
    of_M = np.repeat(np.arange(len(streams)), count_B)
    start_B = np.array([stream.start for stream in streams], np.int64)
    first_B = np.array([stream.count for stream in streams])
    first_B -= np.cumsum(count_B) - count_B
    places_M = first_B[of_M] + np.arange(len(of_M))
    scale = scales(streams)
    scale = scale._replace(loc=scale.loc[of_M], scale=scale.scale[of_M])
    rows = series_rows.Rows(
      np.float32(scale.apply(np.concatenate(values))),
      self.frequency.calendar(start_B[of_M], places_M + 1),
      count_B,
    )
    if streams[0].covariates is None:
      return rows
    known, inputs, categories = [], [], []
    for stream, count in zip(streams, count_B.tolist(), strict=True):
      start, stop = stream.count, stream.count + count
      last = self.covariates.steps(stream.covariates, stop - 1, stop)
      known.append(last.known_LxHxK[0])
      inputs.append(stream.covariates.inputs(start, stop))
      categories.append(stream.covariates.categories_S)
    return rows._replace(
      known_BxHxK=np.stack(known),
      inputs_MxC=np.concatenate(inputs),
      categories_BxS=np.stack(categories),
    )

  def read_all(
    self, streams: Sequence[Stream], values: Sequence[np.ndarray]
  ) -> list[Stream]:
    """Returns streams that have read more, any number of readings each.

    Args:
      streams: that the readings follow.
      values: the readings of each, which `reading` would take.
    """
    if not streams:
      return []
    reader = self.reader
    carry = reader.join([stream.carry for stream in streams])
    made, parts = self.read_rows(streams, carry, values)
    return [
      stream._replace(carry=reader.row(parts, n))
      for n, stream in enumerate(made)
    ]

  def read_rows(
    self,
    streams: Sequence[Stream],
    carry: series_rows.Carry,
    values: Sequence[np.ndarray],
    at_B: np.ndarray | None = None,
    meanwhile: Callable[[], None] = lambda: None,
  ) -> tuple[list[Stream], list[series_rows.Part]]:
    """Returns (streams that have read more, their rows), as `read_all`.

    Args:
      streams: whose own carry has no effect.
      carry: of rows.
      values: the readings of each.
      at_B: the row of each stream; None: they are in order.
      meanwhile: called while the device reads.
    """
    rows = self.given(streams, values)
    parts, result = self.reader.read(carry, rows, at_B, meanwhile)
    numbers_BxOxH = self._unscaled(streams, result)
    made = []
    for stream, count, numbers_OxH in zip(
      streams, rows.count_B.tolist(), numbers_BxOxH, strict=True
    ):
      own, stop = stream.covariates, stream.count + count
      own = None if own is None else own.since(stop - self._data.season)
      kept_OxH = numbers_OxH.copy()  # it may outlive the others
      made.append(
        Stream(*stream[:2], stop, stream.scale, stream.carry, kept_OxH, own)
      )
    return made, parts

  def _unscaled(self, streams, result):
    """Returns the head's numbers BxOxH in readings, or in their logarithms."""
    numbers_BxOxH, loc_BxH, scale_BxH = map(np.float64, result)
    loc_BxT, unit_BxT, _ = scales(streams)
    unit_BxH = np.repeat(unit_BxT, self.horizon, 1)
    shift_BxH = loc_BxH * unit_BxH + np.repeat(loc_BxT, self.horizon, 1)
    unscaled_OxBxH = self._head.unscaled(
      numbers_BxOxH.swapaxes(0, 1), shift_BxH, scale_BxH * unit_BxH
    )
    return unscaled_OxBxH.swapaxes(0, 1)

  def forecast(
    self,
    stream: Stream,
    horizon: int | None = None,
    levels: Sequence[float] | None = None,
    sampling: Sampling = Sampling(),  # noqa: B008, frozen
  ) -> forecast_rows.Forecast:
    """Returns the forecast after a stream's last reading.

    Args:
      stream: the series so far.
      horizon: readings; None: all that the model forecasts.
      levels: of the quantiles; None: those that the run was trained with.
      sampling: the paths that are drawn.

    Raises:
      InputError: as `check`, or a covariate of these times isn't known.
    """
    if not sampling.samples:
      return self.forecast_all([stream], horizon, levels)[0]
    horizon, levels = self._asked(horizon, levels, sampling)
    self.covariates.check_known(stream, horizon)
    paths_PxH = self._paths(stream, horizon, sampling)
    *quantiles, point_H = np.quantile(
      paths_PxH, (*levels, 0.5), 0, method='inverted_cdf'
    )
    return forecast_rows.Forecast(
      stream.name,
      self._times([stream], horizon)[0],
      levels,
      np.stack(quantiles, 1),
      point_H,
      paths_PxH,
    )

  def forecast_all(
    self,
    streams: Sequence[Stream],
    horizon: int | None = None,
    levels: Sequence[float] | None = None,
  ) -> list[forecast_rows.Forecast]:
    """Returns the forecast after each stream's last reading, as of `forecast`.

    Raises:
      InputError: as `forecast`.
    """
    horizon, levels = self._asked(horizon, levels)
    for stream in streams if self.covariates.like is not None else ():
      self.covariates.check_known(stream, horizon)
    if not streams:
      return []
    numbers_BxOxH = _stacked([stream.numbers_OxH for stream in streams])
    shape, T = numbers_BxOxH.shape[:2], len(self._data.readings)
    numbers_BxOxTxH = numbers_BxOxH.reshape(*shape, T, -1)[..., :horizon]
    numbers_BxHxO = numbers_BxOxTxH.reshape(*shape, -1).swapaxes(1, 2)
    quantiles_BxHxQ = self._head.quantiles(numbers_BxHxO, levels)
    point_BxH = self._head.points(numbers_BxHxO)
    if streams[0].scale.log:
      quantiles_BxHxQ, point_BxH = np.exp(quantiles_BxHxQ), np.exp(point_BxH)
    targets = tuple(name for name in self.targets for _ in range(horizon))
    return [
      forecast_rows.Forecast(
        stream.name,
        times * T,
        levels,
        quantiles_HxQ,
        point_H,
        targets=targets,
      )
      for stream, times, quantiles_HxQ, point_H in zip(
        streams,
        self._times(streams, horizon),
        quantiles_BxHxQ,
        point_BxH,
        strict=True,
      )
    ]

  def _asked(self, horizon, levels, sampling=Sampling()):  # noqa: B008, frozen
    """Returns (horizon, levels), which the model can forecast."""
    horizon = self.horizon if horizon is None else horizon
    levels = self.levels if levels is None else tuple(levels)
    self.check(horizon, levels, sampling)
    return horizon, levels

  def _times(self, streams, horizon):
    """Returns the times of the readings after each stream's, as text."""
    start_B = np.array([stream.start for stream in streams], np.int64)
    count_B = np.array([stream.count for stream in streams])
    if self.frequency.is_even:  # many streams have their next reading then
      start_B, count_B = self.frequency.times(start_B, count_B), 0 * count_B
    places = zip(start_B.tolist(), count_B.tolist(), strict=True)
    return [[*_times(self.frequency, *place, horizon)] for place in places]

  def _paths(self, stream, horizon, sampling):
    """Returns drawn readings, PxH."""
    start, stop = stream.count - 1, stream.count + horizon - 1
    calendar_LxF = self.frequency.calendar(
      stream.start, np.arange(start, stop) + 1
    )
    # Steps without covariates have arrays of no width.
    known_LxHxK = inputs_LxC = np.zeros((horizon, 0, 0), np.float32)
    categories_S = np.zeros(0, np.int32)
    if (own := stream.covariates) is not None:
      known_LxHxK, inputs_LxC, _ = self.covariates.steps(own, start, stop)
      categories_S = own.categories_S
    scaled_PxH = paths.draw(
      self.reader,
      stream.carry,
      paths.Ahead(calendar_LxF, known_LxHxK, inputs_LxC, categories_S),
      (sampling.seed, stream.name, sampling.samples),
    )
    return stream.scale.invert(scaled_PxH)

  def forecasts(
    self,
    series: Iterable[panel_lib.Series],
    horizon: int | None = None,
    levels: Sequence[float] | None = None,
    sampling: Sampling = Sampling(),  # noqa: B008, frozen
  ) -> list[forecast_rows.Forecast]:
    """Returns the forecast of each series; the arguments are those."""
    series = [*series]
    made = []
    with activity.doing('forecasting', len(series), 'series') as done:
      for first in range(0, len(series), series_rows.WIDTHS[-1]):
        part = series[first : first + series_rows.WIDTHS[-1]]
        made += [
          self.forecast(stream, horizon, levels, sampling)
          for stream in self.begin_all(part)
        ]
        done(len(part))
    return made


def scales(streams: Sequence[Stream]) -> scaling.Scale:
  """Returns the scale of each stream, BxT."""
  loc, scale, log = zip(*(stream.scale for stream in streams), strict=True)
  return scaling.Scale(_stacked(loc), _stacked(scale), log[0])


def _stacked(arrays):
  """Returns arrays as one; np.stack takes several times as long."""
  shape = len(arrays), *arrays[0].shape
  return np.concatenate(arrays).reshape(shape)


@functools.lru_cache(TIMES)
def _times(frequency, start, count, horizon):
  return panel_lib.times(frequency, start, count + np.arange(horizon))


def check_forecasts(config: Any) -> None:
  """Checks that a config's model forecasts series.

  Raises:
    InputError: it doesn't; names the task.
  """
  if not config.task.reads_series or config.task.series_label:
    errors.refuse(
      'task.name',
      config.task.name,
      "its model forecasts no series: open a run of task.name='forecasting'",
    )
