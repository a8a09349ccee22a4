"""The frequency of readings: a grid of times, its calendar, its season.

A frequency is a number and a unit, as in '15min', 'h' or '3M':

    ms s min h D W     a fixed time
    B                  days from Monday to Friday
    M                  months: '3M' are quarters, '12M' years
    ''                 steps without times, as of an integer column

A time is a number of nanoseconds since 1970, UTC; of '' a step. Months count
from a series' first time; one that begins with the last day of a month has the
last day of each.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from typing import Self

import numpy as np

from rnn_jax import errors

NANOSECONDS = {
  'ms': 10**6,
  's': 10**9,
  'min': 60 * 10**9,
  'h': 3600 * 10**9,
  'D': 86400 * 10**9,
  'W': 7 * 86400 * 10**9,
}
UNITS = (*NANOSECONDS, 'B', 'M')
MONTH, YEAR = np.timedelta64(1, 'M'), np.timedelta64(1, 'Y')
DAY = NANOSECONDS['D']
MIN_MONTH = 28 * DAY
# Of a unit: steps of a season, and of the M4 competition's horizon.
SEASONS = {'h': (24, 48), 'D': (7, 14), 'B': (5, 10), 'W': (1, 13)}
MONTHS = {1: (12, 18), 3: (4, 8), 12: (1, 6)}
OTHER = 1, 8
EXAMPLES = "'h', '15min', 'D', 'B', 'W', 'M', '3M' or '12M'"


class Frequency(NamedTuple):
  """The time between two readings: `multiple` times `unit`; '': a step."""

  multiple: int = 1
  unit: str = ''

  @classmethod
  def parse(cls, text: str, key: str = 'data.frequency') -> Self:
    """Returns the frequency that a text names.

    Raises:
      InputError: it names none; the message begins with `key`.
    """
    match = re.fullmatch(r'(\d{0,6})(\w*)', text, re.A)
    if not match or (text and match[2] not in UNITS) or match[1] == '0':
      errors.refuse(key, text, f'give {EXAMPLES}')
    return cls(int(match[1] or 1), match[2])

  def __str__(self) -> str:
    return f'{self.multiple if self.multiple > 1 else ""}{self.unit}'

  @property
  def steps(self) -> int:
    """Nanoseconds of a fixed time; 0: it isn't one."""
    return self.multiple * NANOSECONDS.get(self.unit, 0)

  @property
  def is_even(self) -> bool:
    """Whether a grid is the same from any of its times on."""
    return bool(self.steps) or not self.unit

  @property
  def season(self) -> int:
    """Readings of a season: of a day, a week or a year."""
    return self._usual()[0]

  @property
  def horizon(self) -> int:
    """The usual number of readings to forecast."""
    return self._usual()[1]

  def _usual(self):
    if self.unit == 'M':
      return MONTHS.get(self.multiple, OTHER)
    if self.multiple == 1 and self.unit in SEASONS:
      return SEASONS[self.unit]
    if self.steps and self.steps < DAY and DAY % self.steps == 0:
      return DAY // self.steps, DAY // self.steps
    return OTHER

  def places(self, start: int | np.ndarray, times_N: np.ndarray) -> np.ndarray:
    """Returns the places of times on the grid from `start`; -1: between them.

    Args:
      start: the first time; an array: of the grid of each.
      times_N: int64, none before it.
    """
    if not self.unit:
      whole, rest = np.divmod(times_N - start, self.multiple)
    elif self.unit == 'B':
      days_N, first = _days(times_N), _days(np.asarray(start, np.int64))
      whole, rest = np.divmod(np.busday_count(first, days_N), self.multiple)
      rest = rest + ~np.is_busday(days_N) + (times_N - start) % DAY
    elif self.unit == 'M':
      months_N, first = _months(times_N), _months(np.asarray(start, np.int64))
      whole, rest = np.divmod(
        (months_N - first).astype(np.int64), self.multiple
      )
      rest = rest + np.abs(self.times(start, whole) - times_N)
    else:
      whole, rest = np.divmod(times_N - start, self.steps)
    return np.where(rest == 0, whole, -1)

  def times(self, start: int | np.ndarray, places_N: np.ndarray) -> np.ndarray:
    """Returns the times of places on the grid from `start`, int64.

    An array of starts: on the grid of each.
    """
    places_N = np.asarray(places_N, np.int64)
    if not self.unit:
      return start + places_N * self.multiple
    if self.unit == 'B':
      days_N = np.busday_offset(
        _days(np.asarray(start, np.int64)),
        places_N * self.multiple,
        roll='forward',
      )
      return days_N.astype('M8[ns]').astype(np.int64) + start % DAY
    if self.unit == 'M':
      return self._of_months(start, places_N * self.multiple)
    return start + places_N * self.steps

  def _of_months(self, start, months_N):
    start = np.asarray(start, np.int64)
    first = _months(start)
    day = (_days(start) - first.astype('M8[D]')).astype(int)
    month_N = first + np.asarray(months_N).astype('m8[M]')
    begin_N = month_N.astype('M8[D]')
    last_N = _length(month_N, MONTH) - 1
    at_end = day == _length(first, MONTH) - 1
    day_N = np.where(at_end, last_N, np.minimum(day, last_N))
    days_N = begin_N + day_N.astype('m8[D]')
    return days_N.astype('M8[ns]').astype(np.int64) + start % DAY

  @property
  def features(self) -> int:
    """How many calendar features a reading has."""
    return 2 * len(self._cycles())

  def calendar(
    self, start: int | np.ndarray, places_N: np.ndarray
  ) -> np.ndarray:
    """Returns the calendar features of places, NxF, float32 in [-1, 1].

    They are sine and cosine of the time of the day, the day of the week and the
    day of the year, those that the frequency leaves open; none of ''.
    """
    times_N = self.times(start, places_N)
    columns = []
    for cycle in self._cycles():
      angle_N = 2 * np.pi * _phase(cycle, times_N)
      columns += [np.sin(angle_N), np.cos(angle_N)]
    out = np.zeros((len(times_N), len(columns)), np.float32)
    for n, column in enumerate(columns):
      out[:, n] = column
    return out

  def _cycles(self):
    """Returns the cycles that readings pass through, 'day', 'week', 'year'."""
    if not self.unit or (self.unit == 'M' and self.multiple % 12 == 0):
      return ()
    if self.unit in ('W', 'M'):
      return ('year',)
    if self.unit in ('D', 'B'):
      return 'week', 'year'
    return 'day', 'week', 'year'


def infer(
  times: Sequence[np.ndarray], names: Sequence[str], key: str
) -> Frequency:
  """Returns the frequency of series: the time that most readings are apart.

  Args:
    times: of each series, int64 nanoseconds, ascending.
    names: of the series.
    key: of the config, for messages.

  Raises:
    InputError: no series has two readings, or two series differ.
  """
  found: dict[Frequency, str] = {}
  counts: dict[Frequency, int] = {}
  for name, times_N in zip(names, times, strict=True):
    if len(times_N) > 1:
      own = _of_one(times_N)
      found.setdefault(own, name)
      counts[own] = counts.get(own, 0) + len(times_N)
  if not found:
    errors.refuse(key, '', f'no series has two readings: give {EXAMPLES}')
  most = max(counts, key=counts.__getitem__)
  for other, name in found.items():
    if other != most:
      errors.refuse(
        key,
        '',
        f'series {name!r} has a reading every {other}, and {found[most]!r} one '
        f'every {most}: put them into two files, or give the frequency of the '
        'grid that both are on',
      )
  return most


def _of_one(times_N):
  apart_N = np.diff(times_N)
  values, counts = np.unique(apart_N, return_counts=True)
  usual = int(values[np.argmax(counts)])
  if usual >= MIN_MONTH:
    months_N = np.diff(_months(times_N)).astype(int)
    values, counts = np.unique(months_N, return_counts=True)
    count = int(values[np.argmax(counts)])
    months = Frequency(count, 'M')
    if count and (months.places(int(times_N[0]), times_N) >= 0).all():
      return months
  weekdays = np.is_busday(_days(times_N)).all()
  if usual == DAY and weekdays and (apart_N == 3 * DAY).any():
    return Frequency(1, 'B')
  for unit in reversed(NANOSECONDS):
    if usual % NANOSECONDS[unit] == 0:
      return Frequency(usual // NANOSECONDS[unit], unit)
  return Frequency(1, 'ms')


def _days(times):
  return times.astype('M8[ns]').astype('M8[D]')


def _months(times):
  return times.astype('M8[ns]').astype('M8[M]')


def _phase(cycle, times_N):
  """Returns where in a cycle times are, in [0, 1)."""
  if cycle == 'day':
    return times_N % DAY / DAY
  if cycle == 'week':
    return (times_N // DAY + 3) % 7 / 7  # 1970 began on a Thursday
  days_N = _days(times_N)
  years_N = days_N.astype('M8[Y]')
  begin_N = years_N.astype('M8[D]')
  return (days_N - begin_N).astype(int) / _length(years_N, YEAR)


def _length(begin, unit):
  """Returns the days of months or years."""
  days = (begin + unit).astype('M8[D]') - begin.astype('M8[D]')
  return days.astype(int)
