"""Grids of times, against pandas' date ranges; what they are inferred from."""

import numpy as np
import pandas as pd
import pytest

from rnn_jax import errors
from rnn_jax.data.series import frequency as frequency_lib

RANGES = (  # name here, of pandas, first time, season
  ('h', 'h', '2024-02-28 05:00', 24),
  ('15min', '15min', '2024-02-28 05:15', 96),
  ('D', 'D', '2023-12-30', 7),
  ('B', 'B', '2024-01-04 09:30', 5),
  ('W', '7D', '2024-02-27', 1),
  ('M', 'MS', '2023-11-01', 12),
  ('M', 'ME', '2023-11-30', 12),
  ('3M', 'QS', '2023-10-01', 4),
  ('12M', 'YE', '2019-12-31', 1),
)


def nanoseconds(times):
  return times.to_numpy('M8[ns]').astype(np.int64)


@pytest.mark.parametrize(('name', 'theirs', 'first', 'season'), RANGES)
def test_a_grid_is_pandas_date_range(name, theirs, first, season):
  times_N = nanoseconds(pd.date_range(first, periods=50, freq=theirs))
  grid = frequency_lib.infer([times_N], ['y'], 'data.frequency')
  assert str(grid) == name and grid.season == season
  places_N = np.arange(50)
  start = int(times_N[0])
  assert np.array_equal(grid.times(start, places_N), times_N)
  assert np.array_equal(grid.places(start, times_N), places_N)
  seen = np.delete(places_N, [3, 4, 17])
  assert np.array_equal(grid.places(start, times_N[seen]), seen)
  assert (grid.places(start, times_N[1:] + 10**6) == -1).all()
  calendar = grid.calendar(start, places_N)
  assert calendar.shape == (50, grid.features)
  # Grids that begin apart, each with a place of its own.
  starts_N, own_N = times_N[:20], np.arange(20) % 7
  each_N = [grid.times(int(x), n) for x, n in zip(starts_N, own_N, strict=True)]
  assert np.array_equal(grid.times(starts_N, own_N), each_N)
  assert np.array_equal(grid.places(starts_N, np.array(each_N)), own_N)
  assert (abs(calendar) <= 1).all()


def test_the_calendar_knows_the_hour_and_the_day_of_the_week():
  times = pd.date_range('2026-03-01', periods=400, freq='h')
  grid = frequency_lib.Frequency.parse('h')
  got = grid.calendar(int(nanoseconds(times)[0]), np.arange(400))
  hour = times.hour.to_numpy() / 24
  day = times.dayofweek.to_numpy() / 7
  for first, phase in ((0, hour), (2, day)):
    angle = 2 * np.pi * phase
    np.testing.assert_allclose(got[:, first], np.sin(angle), atol=1e-6)
    np.testing.assert_allclose(got[:, first + 1], np.cos(angle), atol=1e-6)


def test_gaps_do_not_hide_the_frequency_and_two_frequencies_are_named():
  hours = nanoseconds(pd.date_range('2026-01-01', periods=90, freq='h'))
  gaps = np.delete(hours, [4, 5, 6, 30])
  days = nanoseconds(pd.date_range('2026-01-01', periods=20, freq='D'))
  assert str(frequency_lib.infer([gaps], ['y'], 'k')) == 'h'
  with pytest.raises(errors.InputError, match="'b' has a reading every D.* h:"):
    frequency_lib.infer([hours, days], ['a', 'b'], 'k')
  with pytest.raises(errors.InputError, match='no series has two readings'):
    frequency_lib.infer([hours[:1]], ['a'], 'k')


@pytest.mark.parametrize('text', ('hourly', '0h', 'h15', '-1h', '1.5h'))
def test_other_names_are_refused(text):
  with pytest.raises(errors.InputError, match=r"data.frequency=.*: give 'h'"):
    frequency_lib.Frequency.parse(text)
