"""Readings of clients and their times, on the grid of a run's series.

A time is text in ISO 8601, and one with an offset is converted to UTC; of a run
without dates it is a whole number. A time that is left out between two readings
is a missing reading.
"""

import datetime
from collections.abc import Sequence

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import panel
from rnn_jax.data.series import tables
from rnn_jax.inference import forecast as forecast_lib

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)
YEARS = 1678, 2261  # that nanoseconds reach
MAX_NUMBER = 10**15  # of a run without dates
Time = str | int


class ConflictError(errors.InputError):
  """A stream has read another reading at this time."""


def history(
  model: forecast_lib.Forecaster,
  name: str,
  times: Sequence[Time] | None,
  readings: Sequence[float],
  most: int,
) -> panel.Series:
  """Returns a series that begins with the first of its readings.

  Args:
    model: of the run.
    name: of the series.
    times: of the readings; None: one after the other, from 0 on.
    readings: NaN is missing.
    most: readings, missing ones included.

  Raises:
    InputError: there is no reading, or one is too large, or a time is wrong.
  """
  grid = model.frequency
  if not len(readings):
    errors.refuse('readings', [], 'give one or more')
  if times is None:
    if grid.unit:
      raise errors.InputError(
        f'times is missing: the run has a reading every {grid}: give the time '
        'of each'
      )
    times = [n * grid.multiple for n in range(len(readings))]
  start = _parse(grid, times[0])
  places_N = _places(grid, start, times, len(readings))
  made = panel.Series(name, start, _filled(places_N, 0, readings, most))
  with np.errstate(over='ignore'):  # a sum of what is refused
    scale = model.empty(made).scale
  model.reading(scale, np.nanmin(made.values_N))  # it may need a logarithm
  largest = np.nanargmax(np.abs(scale.apply(made.values_N)))
  model.reading(scale, made.values_N[largest])
  return made


def following(
  model: forecast_lib.Forecaster,
  stream: forecast_lib.Stream,
  window_W: np.ndarray,
  times: Sequence[Time] | None,
  readings: Sequence[float],
  most: int,
) -> np.ndarray:
  """Returns the readings that a stream hasn't read yet, up to the last.

  Args:
    model: of the run.
    stream: whose carry has no effect.
    window_W: its last readings, scaled.
    times: of the readings; None: those after the stream's last one.
    readings: NaN is missing.
    most: readings, missing ones included.

  Raises:
    ConflictError: the stream has read another one at this time.
    InputError: a time is wrong, or before the stream's window.
  """
  if not len(readings):
    errors.refuse('readings', [], 'give one or more')
  values_N = np.array([model.reading(stream.scale, x) for x in readings])
  if times is None:
    places_N = stream.count + np.arange(len(values_N))
  else:
    places_N = _places(model.frequency, stream.start, times, len(values_N))
  old = int(np.searchsorted(places_N, stream.count))
  for n in range(old):
    place = int(places_N[n])
    _check_repeated(model.frequency, stream, window_W, place, values_N[n])
  return _filled(places_N[old:], stream.count, values_N[old:], most)


def shown(grid: frequency_lib.Frequency, start: int, place: int) -> str:
  """Returns the time of a place of a series that begins at `start`."""
  return panel.times(grid, start, np.array([place]))[0]


def shown_all(
  grid: frequency_lib.Frequency, stream: forecast_lib.Stream, places: np.ndarray
) -> list[str]:
  """Returns the times of places of a stream."""
  return panel.times(grid, stream.start, places)


def recent(
  stream: forecast_lib.Stream, window_W: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (places, readings) of a stream's window, rounded to float32."""
  seen = min(len(window_W), stream.count)
  places = np.arange(stream.count - seen, stream.count)
  return places, stream.scale.invert(window_W[len(window_W) - seen :])


def _parse(grid, time):
  """Returns a time as int64."""
  if not grid.unit:
    if isinstance(time, str) or abs(time) > MAX_NUMBER:
      errors.refuse(
        'time', time, 'the run has no dates: give a whole number up to 1e15'
      )
    return time
  try:
    if not isinstance(time, str):
      raise ValueError
    given = datetime.datetime.fromisoformat(time)
    if given.tzinfo is not None:
      given = given.astimezone(datetime.UTC).replace(tzinfo=None)
    if not YEARS[0] <= given.year <= YEARS[1]:
      raise ValueError
  except (ValueError, OverflowError):
    errors.refuse(
      'time',
      time if isinstance(time, int) else time[:40],
      'give one from 1678 to 2261, as 2026-01-31T23:00:00',
    )
  return (given - EPOCH) // MICROSECOND * 1000


def _places(grid, start, times, count):
  """Returns the places of ascending times on the grid from `start`."""
  if len(times) != count:
    errors.refuse(
      'times', f'{len(times):,} times', f'there are {count:,} readings'
    )
  times_N = np.array([_parse(grid, time) for time in times], np.int64)
  dated = bool(grid.unit)
  begin = tables.shown(start, dated)
  for n in np.flatnonzero(times_N < start):
    errors.refuse('time', times[n], f'the series begins at {begin}')
  for n in 1 + np.flatnonzero(np.diff(times_N) <= 0):
    errors.refuse(
      'time', times[n], f'it is not after {times[n - 1]}: give them in order'
    )
  places_N = grid.places(start, times_N)
  for n in np.flatnonzero(places_N < 0):
    errors.refuse(
      'time',
      times[n],
      f'the run has a reading every {grid or grid.multiple} from {begin} on: '
      'give one of these times',
    )
  return places_N


def _check_repeated(grid, stream, window_W, place, reading):
  back = stream.count - place
  time = shown(grid, stream.start, place)
  last = shown(grid, stream.start, stream.count - 1)
  if back > len(window_W):
    errors.refuse(
      'time',
      time,
      f'out of order: the stream has read up to {last}, and only its last '
      f'{len(window_W)} readings may come again',
    )
  (scaled,) = np.float32(stream.scale.apply(np.array([reading])))
  kept = window_W[-back]
  if scaled != kept and not (np.isnan(scaled) and np.isnan(kept)):
    raise ConflictError(
      f'time={time!r}: the stream has read up to {last}, and another reading '
      'at this time: none is corrected later; make the stream again'
    )


def _filled(places_N, begin, readings, most):
  """Returns the readings from `begin` to the last place; NaN: missing."""
  length = int(places_N[-1]) + 1 - begin if len(places_N) else 0
  if length > most:
    errors.refuse(
      'readings',
      f'{length:,} with the missing ones',
      f'give at most {most:,} at a time',
    )
  values_N = np.full(length, np.nan)
  values_N[places_N - begin] = readings
  return values_N
