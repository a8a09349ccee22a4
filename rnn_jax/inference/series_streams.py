"""Streams of series: they take readings, any number at a time.

A history and a single reading run the same steps, and series that are read
together have the bits that each has by itself (series_widths.py): a stream
equals, bit for bit, the series read from its start. A series is scaled by what
the run has kept for its name, or else by the history that it begins with, which
the stream keeps.
"""

from collections.abc import Callable
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
from rnn_jax.inference import readings as readings_lib
from rnn_jax.inference import series_rows
from rnn_jax.inference import series_steps
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle as bundle_lib

NOTHING = np.zeros((0, 0))


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
  carry: series_steps.Carry
  numbers_OxH: np.ndarray
  covariates: series_covariates.Scaled | None = None


class StreamReader:
  """A trained forecaster's streams: what each has read, and what follows.

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
    start_M = np.array([stream.start for stream in streams], np.int64)
    places_M = np.array([stream.count for stream in streams])
    scale = scales(streams)
    if (count_B != 1).any():
      of_M = np.repeat(np.arange(len(streams)), count_B)
      before_B = np.cumsum(count_B) - count_B
      places_M = (places_M - before_B)[of_M] + np.arange(len(of_M))
      start_M = start_M[of_M]
      scale = scale._replace(loc=scale.loc[of_M], scale=scale.scale[of_M])
    rows = series_rows.Rows(
      np.float32(scale.apply(np.concatenate(values))),
      self.frequency.calendar(start_M, places_M + 1),
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
    carry: series_steps.Carry,
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
    if self.targets:
      loc_BxT, unit_BxT = (
        np.repeat(x, self.horizon, 1) for x in (loc_BxT, unit_BxT)
      )
    shift_BxH = loc_BxH * unit_BxT + loc_BxT
    unscaled_OxBxH = self._head.unscaled(
      numbers_BxOxH.swapaxes(0, 1), shift_BxH, scale_BxH * unit_BxT
    )
    return unscaled_OxBxH.swapaxes(0, 1)


def scales(streams: Sequence[Stream]) -> scaling.Scale:
  """Returns the scale of each stream, BxT."""
  loc, scale, log = zip(*(stream.scale for stream in streams), strict=True)
  return scaling.Scale(stacked(loc), stacked(scale), log[0])


def stacked(arrays):
  """Returns arrays as one; np.stack takes several times as long."""
  shape = len(arrays), *arrays[0].shape
  return np.concatenate(arrays).reshape(shape)


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
