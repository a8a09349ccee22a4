"""What clients give of series: readings, times and covariates, on a run's grid.

A time is text in ISO 8601, and one with an offset is converted to UTC; of a run
without dates it is a whole number. A time that is left out between two readings
is a missing reading.
"""

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import covariates as series_covariates
from rnn_jax.data.series import fields
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import panel
from rnn_jax.inference import covariates as covariates_lib
from rnn_jax.inference import readings as readings_lib
from rnn_jax.inference import series_streams

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)
YEARS = 1678, 2261  # that nanoseconds reach
MAX_NUMBER = 10**15  # of a run without dates
KNOWN = 'known_times', 'rows of known'  # of messages
Time = str | int


class ConflictError(errors.InputError):
  """A stream has read another reading, or knows another number, at a time."""


class Besides(NamedTuple):
  """What comes with readings.

  Attributes:
    known: by column, numbers. With a history they are of its readings and then
      of the times after them, with later readings of the times after those
      whose are known.
    known_times: of these numbers, if they are of others.
    observed: by column, a number for each reading.
    static: by column, a number or a text of a history.
    horizon: readings that are forecast, whose numbers must be known.
  """

  known: covariates_lib.Given = covariates_lib.NONE
  known_times: Sequence[Time] | None = None
  observed: covariates_lib.Given = covariates_lib.NONE
  static: covariates_lib.Given = covariates_lib.NONE
  horizon: int = 0


NOTHING = Besides()


def history(
  model: series_streams.StreamReader,
  name: str,
  times: Sequence[Time] | None,
  readings: Sequence[readings_lib.Reading],
  most: int,
  besides: Besides = NOTHING,
) -> panel.Series:
  """Returns a series that begins with the first of its readings.

  Args:
    model: of the run.
    name: of the series.
    times: of the readings; None: one after the other, from 0 on.
    readings: NaN is missing.
    most: readings, missing ones included.
    besides: what comes with them.

  Raises:
    InputError: there is no reading, or one, its time or its covariates are
      wrong, or what is known ends before the forecast does.
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
  made = panel.Series(
    name,
    start,
    _filled(places_N, 0, model.readings.numbers(readings), most),
    _covariates(model, start, places_N, besides, most),
    model.covariates.texts(name, besides.static),
  )
  whole = panel.Panel(grid, bool(grid.unit), [made])
  (made,) = model.covariates.split(whole).series
  model.empty(made)  # refuses what can't be read
  wanted = len(made.values_NxT) + besides.horizon
  model.covariates.check_reach(made, len(made.covariates_MxC), wanted)
  return made


def _covariates(model, start, places_N, besides, most):
  """Returns the known and the observed columns of a history, MxC."""
  known, observed = model.covariates.names
  observed_NxO = series_covariates.numbers(
    'observed', observed, besides.observed, len(places_N)
  )
  observed_NxO = _filled(places_N, 0, observed_NxO, most)
  if (times := besides.known_times) is None:
    given = max(map(np.size, besides.known.values()), default=0)
    after_N = places_N[-1] + 1 + np.arange(max(given - len(places_N), 0))
    places_M = np.concatenate([places_N, after_N])
  else:
    places_M = _places(model.frequency, start, times, len(times), *KNOWN)
  known_MxK = series_covariates.numbers(
    'known', known, besides.known, len(places_M)
  )
  known_MxK = _filled(places_M, 0, known_MxK, most + model.horizon, 'known')
  stop = max(len(known_MxK), len(observed_NxO))
  columns = [
    np.pad(x, ((0, stop - len(x)), (0, 0)), constant_values=np.nan)
    for x in (known_MxK, observed_NxO)
  ]
  return np.concatenate(columns, 1)


def following(
  model: series_streams.StreamReader,
  stream: series_streams.Stream,
  window_TxW: np.ndarray,
  times: Sequence[Time] | None,
  readings: Sequence[readings_lib.Reading],
  most: int,
  besides: Besides = NOTHING,
) -> tuple[series_streams.Stream, np.ndarray]:
  """Returns a stream with what comes, and the readings that it hasn't read yet.

  Args:
    model: of the run.
    stream: whose carry has no effect.
    window_TxW: its last readings, scaled.
    times: of the readings; None: those after the stream's last one.
    readings: NaN is missing.
    most: readings, missing ones included.
    besides: what comes with them.

  Raises:
    ConflictError: the stream has another reading, or number, at this time.
    InputError: a time is wrong, or before the stream's window, the covariates
      aren't the run's, or what is known ends before the forecast does.
  """
  if not len(readings):
    errors.refuse('readings', [], 'give one or more')
  values_NxT = model.readings.numbers(readings)
  model.readings.check(values_NxT, stream.scale, stream.name)
  if times is None:
    places_N = stream.count + np.arange(len(values_NxT))
  else:
    places_N = _places(model.frequency, stream.start, times, len(values_NxT))
  old = int(np.searchsorted(places_N, stream.count))
  for n in range(old):
    place = int(places_N[n])
    _check_repeated(model.frequency, stream, window_TxW, place, values_NxT[n])
  new_NxT = _filled(places_N[old:], stream.count, values_NxT[old:], most)
  given = besides.known or besides.observed
  if not len(new_NxT) or (stream.covariates is None and not given):
    return stream, new_NxT
  observed_NxO = series_covariates.numbers(
    'observed', model.covariates.names[1], besides.observed, len(values_NxT)
  )
  observed_NxO = _filled(places_N[old:], stream.count, observed_NxO[old:], most)
  known_MxK = _known_after(model, stream, besides, times is not None)
  own = model.covariates.extended(stream, known_MxK, observed_NxO)
  stream = stream._replace(covariates=own)
  model.covariates.check_known(stream, besides.horizon, len(new_NxT))
  return stream, new_NxT


def next_readings(
  model: series_streams.StreamReader,
  streams: Sequence[series_streams.Stream],
  times: Sequence[Time | None],
  readings: Sequence[readings_lib.Reading],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (readings BxT, whether each is all that `following` would return).

  Others come again, leave out a time, or are refused: `following` says so.

  Args:
    model: of the run.
    streams: B streams without covariates.
    times: of the readings; None: it is the one after the stream's last.
    readings: one of each stream; NaN is missing.
  """
  try:
    values_BxT = model.readings.numbers(readings)
  except errors.InputError:
    return np.zeros((len(streams), 0)), np.zeros(len(streams), bool)
  wrong_BxT = model.readings.wrong(values_BxT, series_streams.scales(streams))
  is_next_B = np.asarray(~wrong_BxT.any(1))
  timed, parsed = [], []
  for n, time in enumerate(times):
    if time is None:
      continue
    try:
      parsed.append(_parse(model.frequency, time))
      timed.append(n)
    except errors.InputError:
      is_next_B[n] = False
  if timed:
    start_N = np.array([streams[n].start for n in timed], np.int64)
    count_N = np.array([streams[n].count for n in timed])
    places_N = model.frequency.places(start_N, np.array(parsed, np.int64))
    is_next_B[timed] &= places_N == count_N
  return values_BxT, is_next_B


def _known_after(model, stream, besides, timed):
  """Returns what is known of the times after those whose are, MxK."""
  names, own = model.covariates.names[0], stream.covariates
  known_MxK = series_covariates.numbers('known', names, besides.known)
  times = besides.known_times
  if not len(known_MxK) or (times is None and not timed):
    return known_MxK
  if times is None:
    raise errors.InputError(
      'known_times is missing: give the times of known, too, as those of '
      'readings are given, so that the request may come again'
    )
  grid, start = model.frequency, stream.start
  places_M = _places(grid, start, times, len(known_MxK), *KNOWN)
  old = int(np.searchsorted(places_M, own.stop))
  for place, row_K in zip(places_M[:old], known_MxK[:old], strict=True):
    if place >= own.first and own.differs(int(place), row_K):
      raise ConflictError(
        f'known_times={shown(grid, start, int(place))!r}: the stream knows '
        'other numbers of this time: none is corrected later; make the stream '
        'again'
      )
  wanted_M = own.stop + np.arange(len(places_M) - old)
  for n in np.flatnonzero(places_M[old:] != wanted_M)[:1]:
    errors.refuse(
      'known_times',
      times[old + n],
      f'give each time from {shown(grid, start, int(wanted_M[n]))} on',
    )
  return known_MxK[old:]


def shown(grid: frequency_lib.Frequency, start: int, place: int) -> str:
  """Returns the time of a place of a series that begins at `start`."""
  return panel.times(grid, start, np.array([place]))[0]


def shown_all(
  grid: frequency_lib.Frequency,
  stream: series_streams.Stream,
  places: np.ndarray,
) -> list[str]:
  """Returns the times of places of a stream."""
  return panel.times(grid, stream.start, places)


def recent(
  stream: series_streams.Stream,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (places, readings NxT) of a stream's window, rounded to float32."""
  (window_TxW,) = stream.carry.window_BxTxW
  window = window_TxW.shape[1]
  seen = min(window, stream.count)
  places = np.arange(stream.count - seen, stream.count)
  return places, stream.scale.invert(window_TxW[:, window - seen :].T)


def _parse(grid, time, key='time'):
  """Returns a time as int64."""
  if not grid.unit:
    if isinstance(time, str) or abs(time) > MAX_NUMBER:
      errors.refuse(
        key, time, 'the run has no dates: give a whole number up to 1e15'
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
      key,
      time if isinstance(time, int) else time[:40],
      'give one from 1678 to 2261, as 2026-01-31T23:00:00',
    )
  return (given - EPOCH) // MICROSECOND * 1000


def _places(grid, start, times, count, key='time', of='readings'):
  """Returns the places of ascending times on the grid from `start`."""
  if len(times) != count:
    errors.refuse(
      f'{key.removesuffix("s")}s',
      f'{len(times):,} times',
      f'there are {count:,} {of}',
    )
  times_N = np.array([_parse(grid, time, key) for time in times], np.int64)
  dated = bool(grid.unit)
  begin = fields.shown(start, dated)
  for n in np.flatnonzero(times_N < start):
    errors.refuse(key, times[n], f'the series begins at {begin}')
  for n in 1 + np.flatnonzero(np.diff(times_N) <= 0):
    errors.refuse(
      key, times[n], f'it is not after {times[n - 1]}: give them in order'
    )
  places_N = grid.places(start, times_N)
  for n in np.flatnonzero(places_N < 0):
    errors.refuse(
      key,
      times[n],
      f'the run has a reading every {grid or grid.multiple} from {begin} on: '
      'give one of these times',
    )
  return places_N


def _check_repeated(grid, stream, window_TxW, place, reading_T):
  back = stream.count - place
  time = shown(grid, stream.start, place)
  last = shown(grid, stream.start, stream.count - 1)
  if back > window_TxW.shape[1]:
    errors.refuse(
      'time',
      time,
      f'out of order: the stream has read up to {last}, and only its last '
      f'{window_TxW.shape[1]} readings may come again',
    )
  scaled_T = np.float32(stream.scale.apply(reading_T))
  if not np.array_equal(scaled_T, window_TxW[:, -back], equal_nan=True):
    raise ConflictError(
      f'time={time!r}: the stream has read up to {last}, and another reading '
      'at this time: none is corrected later; make the stream again'
    )


def _filled(places_N, begin, rows, most, key='readings'):
  """Returns rows from `begin` to the last place; NaN: missing."""
  length = int(places_N[-1]) + 1 - begin if len(places_N) else 0
  if length > most:
    errors.refuse(
      key,
      f'{length:,} with the missing ones',
      f'give at most {most:,} at a time',
    )
  filled = np.full((length, *rows.shape[1:]), np.nan)
  filled[places_N - begin] = rows
  return filled
