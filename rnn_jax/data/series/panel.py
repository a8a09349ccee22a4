"""Series on a grid of times: what tables become, and what documents hold.

A reading that a table lacks is NaN; a time between two of the grid is refused.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import fields
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import tables

LONGEST = 2**26  # readings of a series, missing ones included


class Series(NamedTuple):
  """Readings of T targets on a grid from `start` on, float64; NaN is missing.

  Covariates begin with the first reading, and may go on after the last one.
  """

  name: str
  start: int
  values_NxT: np.ndarray
  covariates_MxC: np.ndarray = tables.NO_COVARIATES
  static: tuple[str, ...] = ()


class Panel(NamedTuple):
  """Series of one frequency; `dated`: their times are dates."""

  frequency: frequency_lib.Frequency
  dated: bool
  series: list[Series]

  def times(self, n: int, places_N: np.ndarray) -> list[str]:
    """Returns the times of places of series `n` as text."""
    return times(self.frequency, self.series[n].start, places_N)


def times(
  frequency: frequency_lib.Frequency, start: int, places_N: np.ndarray
) -> list[str]:
  """Returns the times of places on a grid as text."""
  whole_days = start % frequency_lib.DAY == 0 and not (
    frequency.steps % frequency_lib.DAY
  )
  times_N = frequency.times(start, places_N)
  return fields.shown_all(times_N, bool(frequency.unit), whole_days)


def of(raws: Sequence[tables.Raw], frequency: str, key: str) -> Panel:
  """Returns series on the grid of a frequency.

  Args:
    raws: of `tables.read`.
    frequency: its name; '': the one that most readings have.
    key: that gives it, for messages.

  Raises:
    InputError: a reading is off the grid, the frequency is wrong, or nothing
      tells it.
  """
  dated = _dated(raws)
  grid = _frequency(raws, frequency, dated, key)
  return Panel(grid, dated, [_on_grid(raw, grid, key) for raw in raws])


def _dated(raws):
  kinds = {(raw.times_N is not None, raw.dated): raw for raw in raws}
  if len(kinds) > 1:
    a, b, *_ = kinds.values()
    raise errors.InputError(
      f'{a.where(0)} and {b.where(0)}: one has other times than the other: '
      'give dates, numbers or none in all files'
    )
  return raws[0].dated


def _frequency(raws, given, dated, key):
  if not dated:
    if given:
      errors.refuse(key, given, f'{raws[0].file} has no dates: leave it out')
    return frequency_lib.Frequency(_step(raws))
  if given:
    return frequency_lib.Frequency.parse(given, key)
  times = [raw.times_N for raw in raws]
  return frequency_lib.infer(times, tables.names_of(raws), key)


def _step(raws):
  """Returns what most numbers of an integer column are apart."""
  numbered = [np.diff(x.times_N) for x in raws if x.times_N is not None]
  apart_N = np.concatenate([np.zeros(0, np.int64), *numbered])
  if not len(apart_N):
    return 1
  values, counts = np.unique(apart_N, return_counts=True)
  return int(values[np.argmax(counts)])


def _on_grid(raw, grid, key):
  static = raw.static
  if raw.times_N is None:
    return Series(raw.name, 0, raw.values_NxT, raw.covariates_NxC, static)
  start = int(raw.times_N[0])
  places_N = grid.places(start, raw.times_N)
  off = np.flatnonzero(places_N < 0)
  if len(off):
    n = int(off[0])
    raise errors.InputError(
      f'{raw.where(n)}: series {raw.name!r} has '
      f'{fields.shown(int(raw.times_N[n]), raw.dated)}, and readings every '
      f'{grid or grid.multiple} from {fields.shown(start, raw.dated)} on: '
      f'correct the time, or give {key}'
    )
  length = int(places_N[-1]) + 1
  if length > LONGEST:
    raise errors.InputError(
      f'{raw.where(0)}: series {raw.name!r} has {length:,} times at a '
      f'frequency of {grid}, more than {LONGEST:,}: give the frequency of its '
      f'readings by {key}'
    )
  values_MxT = np.full((length, raw.values_NxT.shape[1]), np.nan)
  values_MxT[places_N] = raw.values_NxT
  covariates_MxC = np.full((length, raw.covariates_NxC.shape[1]), np.nan)
  if covariates_MxC.shape[1]:
    covariates_MxC[places_N] = raw.covariates_NxC
  return Series(raw.name, start, values_MxT, covariates_MxC, static)


def up_to_last_reading(panel: Panel) -> Panel:
  """Returns series that end with their last reading.

  What their tables have of later times are covariates that are known ahead.
  """
  ended = []
  for each in panel.series:
    seen = np.flatnonzero(~np.isnan(each.values_NxT).all(1))
    stop = int(seen[-1]) + 1 if len(seen) else 0
    ended.append(each._replace(values_NxT=each.values_NxT[:stop]))
  return panel._replace(series=ended)


def joined(parts: Sequence[Sequence[tables.Raw]]) -> list[tables.Raw]:
  """Returns series whose later readings are in other files.

  Args:
    parts: the series of each file; of the first all, by name.

  Raises:
    InputError: a later file has a series that the first lacks, or a time that
      isn't after the earlier ones.
  """
  first, *later = parts
  joined = {raw.name: raw for raw in first}
  for part in later:
    for raw in part:
      if raw.name not in joined:
        raise errors.InputError(
          f'{raw.where(0)}: series {raw.name!r} is not in {first[0].file}: '
          'give its earlier readings there'
        )
      joined[raw.name] = _after(joined[raw.name], raw)
  return [*joined.values()]


def _after(old, new):
  if (old.times_N is None) != (new.times_N is None) or old.dated != new.dated:
    raise errors.InputError(
      f'{new.where(0)}: it has other times than {old.file}: give dates, '
      'numbers or none in both'
    )
  times_N = None
  if new.times_N is not None:
    if len(new.times_N) and new.times_N[0] <= old.times_N[-1]:
      raise errors.InputError(
        f'{new.where(0)}: series {new.name!r} begins at '
        f'{fields.shown(int(new.times_N[0]), new.dated)}, and {old.file} has '
        f'it up to {fields.shown(int(old.times_N[-1]), old.dated)}: give what '
        'follows'
      )
    times_N = np.concatenate([old.times_N, new.times_N])
  values_NxT = np.concatenate([old.values_NxT, new.values_NxT])
  lines = [
    np.zeros(len(x.values_NxT), int) if x.lines_N is None else x.lines_N
    for x in (old, new)
  ]
  for a, b in zip(old.static, new.static, strict=False):
    if a and b and a != b:
      raise errors.InputError(
        f'{new.where(0)}: series {new.name!r} has {b[:40]!r} in a static '
        f'column, and {a[:40]!r} in {old.file}: give one value a series'
      )
  covariates = old.covariates_NxC, new.covariates_NxC
  return old._replace(
    times_N=times_N,
    values_NxT=values_NxT,
    lines_N=np.concatenate(lines),
    covariates_NxC=np.concatenate(covariates),
  )
