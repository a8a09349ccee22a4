"""What a row knows besides its readings.

    known       columns that are known ahead, such as prices and holidays
    observed    columns that are known up to now, such as the weather
    static      of a whole series a number, or a category

These are the kinds of Lim et al., "Temporal Fusion Transformers for
Interpretable Multi-horizon Time Series Forecasting", 2021. A step t of C
covariates and S categories reads

    inputs_C      known_t, observed_t and the static numbers
    categories_S  the entry of each category; 0: it is missing, or unknown
    known_HxK     of each reading t + 1 ... t + H that it forecasts, known_{t+h}
                  and known of the latest step a number of seasons before t + h,
                  which an anchor may repeat

Known and observed columns are scaled by the training part of each series, to
mean 0 and standard deviation 1; one that only has 0 and 1 stays as it is.
Static numbers are scaled over series. What is missing is NaN, which the model
masks.
"""

import bisect
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import scaling
from rnn_jax.data.text import tokenizer as tokenizer_lib

LARGEST = 1e15  # of a scaled number; sums of squares are finite in float32


class Columns(NamedTuple):
  """The names of columns; `numbers` and `categories` are the static ones."""

  known: tuple[str, ...]
  observed: tuple[str, ...]
  numbers: tuple[str, ...]
  categories: tuple[str, ...]

  @property
  def moving(self) -> tuple[str, ...]:
    """Those that change from step to step."""
    return self.known + self.observed

  @property
  def widths(self) -> tuple[int, int, int]:
    """The widths K, C and S of a step's arrays, see the module's docstring."""
    inputs = len(self.moving) + len(self.numbers)
    return 2 * len(self.known), inputs, len(self.categories)


class Steps(NamedTuple):
  """What L steps know besides their readings, see the module's docstring."""

  known_LxHxK: np.ndarray
  inputs_LxC: np.ndarray
  categories_LxS: np.ndarray


class Scaled(NamedTuple):
  """Covariates of a series, scaled, float32; NaN is missing.

  Attributes:
    first: the place of the first row of `moving_MxC`.
    moving_MxC: the known columns, then the observed ones.
    scales: of these columns.
    numbers_N: the static numbers.
    categories_S: int32, the entries of the categories.
  """

  first: int
  moving_MxC: np.ndarray
  scales: tuple[scaling.Scale, ...]
  numbers_N: np.ndarray
  categories_S: np.ndarray

  @property
  def stop(self) -> int:
    """The place after the last row."""
    return self.first + len(self.moving_MxC)

  def rows(self, start: int, stop: int) -> np.ndarray:
    """Returns moving_C of places from `start` to before `stop`, NaN outside."""
    wide = np.full((stop - start, self.moving_MxC.shape[1]), np.nan, np.float32)
    low = max(start, self.first)
    high = max(min(stop, self.stop), low)
    wide[low - start : high - start] = self.moving_MxC[
      low - self.first : high - self.first
    ]
    return wide

  def steps(self, places: tuple[int, int], known: int, data: Any) -> Steps:
    """Returns what steps from one place to before another know.

    Args:
      places: of the first step, and the one after the last.
      known: how many columns are known ahead.
      data: section `data` of the config.
    """
    start, stop = places
    length, H, season = stop - start, data.horizon, data.season
    around = self.rows(start - season, stop + H)[:, :known]
    ahead_H = np.arange(1, H + 1)
    before_H = ahead_H - season * -(-ahead_H // season)
    at_Lx1 = np.arange(length)[:, None] + season
    known_LxHxK = np.concatenate(
      [around[at_Lx1 + ahead_H[None]], around[at_Lx1 + before_H[None]]], 2
    )
    categories_LxS = np.tile(self.categories_S, (length, 1))
    return Steps(known_LxHxK, self.inputs(start, stop), categories_LxS)

  def inputs(self, start: int, stop: int) -> np.ndarray:
    """Returns inputs_LxC of places from `start` to before `stop`."""
    numbers_LxN = np.tile(self.numbers_N, (stop - start, 1))
    return np.concatenate([self.rows(start, stop), numbers_LxN], 1)

  def since(self, place: int) -> Self:
    """Returns them without the rows before a place."""
    first = max(self.first, place)
    return self._replace(
      first=first, moving_MxC=self.moving_MxC[first - self.first :]
    )

  def extended(self, rows_NxC: np.ndarray) -> Self:
    """Returns them with more rows, which aren't scaled yet.

    Raises:
      InputError: a number is far from the training part's.
    """
    more_NxC = _scaled_rows(rows_NxC, self.scales)
    return self._replace(moving_MxC=np.concatenate([self.moving_MxC, more_NxC]))

  def observed(self, place: int, values_NxO: np.ndarray) -> Self:
    """Returns them with the observed columns of rows, not scaled yet.

    Args:
      place: of the first of these rows.
      values_NxO: NaN is missing.

    Raises:
      InputError: as `extended`.
    """
    count, width = values_NxO.shape
    known, first = len(self.scales) - width, place - self.first
    moving_MxC = self.moving_MxC.copy()
    moving_MxC[first : first + count, known:] = _scaled_rows(
      values_NxO, self.scales[known:]
    )
    return self._replace(moving_MxC=moving_MxC)

  def differs(self, place: int, known_K: np.ndarray) -> bool:
    """Returns whether a row has other known columns than these, unscaled."""
    width = len(known_K)
    given_1xK = _scaled_rows(known_K[None], self.scales[:width])
    own_1xK = self.rows(place, place + 1)[:, :width]
    return not np.array_equal(given_1xK, own_1xK, equal_nan=True)

  def from_place(self, place: int) -> np.ndarray:
    """Returns the rows from a place on, MxC, scaled."""
    return self.moving_MxC[place - self.first :]

  def with_rows(self, place: int, rows_MxC: np.ndarray) -> Self:
    """Returns them with what `from_place` returned at that place."""
    before_MxC = self.moving_MxC[: place - self.first]
    return self._replace(moving_MxC=np.concatenate([before_MxC, rows_MxC]))


def columns(data: Any) -> Columns | None:
  """Returns the columns of section `data`; None: it has no covariates."""
  if not data.known + data.observed + data.static:
    return None
  numbers = tuple(x for x in data.static if x not in data.categories)
  categories = tuple(x for x in data.static if x in data.categories)
  return Columns(data.known, data.observed, numbers, categories)


def scaled(
  series: panel_lib.Series,
  count: int,
  scales: tokenizer_lib.Scales,
  data: Any,
) -> Scaled:
  """Returns the covariates of a series as a run has them.

  Args:
    series: the series.
    count: its first rows, by which an unknown series is scaled.
    scales: of the run.
    data: section `data` of the config, which has covariates.

  Raises:
    InputError: a number is far from those of training.
  """
  named = columns(data)
  assert named is not None
  own = scales.covariates.get(series.name, {})
  moving = tuple(
    _scale(own[name])
    if name in own
    else scaling.fit_covariate(series.covariates_MxC[:count, n])
    for n, name in enumerate(named.moving)
  )
  texts = dict(zip(data.static, series.static, strict=True))
  numbers_1xN = np.array([[_number(texts[name]) for name in named.numbers]])
  of_numbers = [_scale(scales.numbers[name]) for name in named.numbers]
  categories = [
    _entry(scales.categories[name], texts[name]) for name in named.categories
  ]
  empty = Scaled(
    0,
    np.zeros((0, len(moving)), np.float32),
    moving,
    _scaled_rows(numbers_1xN, of_numbers)[0],
    np.array(categories, np.int32),
  )
  return empty.extended(series.covariates_MxC)


def fit(
  series: Sequence[panel_lib.Series], counts: Sequence[int], data: Any
) -> dict[str, Any]:
  """Returns what a run keeps, arguments of tokenizer_lib.Scales by name.

  Args:
    series: those that are trained on.
    counts: of each, the rows of its training part.
    data: section `data` of the config.
  """
  if not (named := columns(data)):
    return {}
  covariates: dict[str, dict[str, list[float]]] = {}
  for each, count in zip(series, counts, strict=True):
    covariates[each.name] = {
      name: _pair(scaling.fit_covariate(each.covariates_MxC[:count, n]))
      for n, name in enumerate(named.moving)
    }
  texts = {
    name: [each.static[n] for each in series]
    for n, name in enumerate(data.static)
  }
  numbers = {
    name: _pair(scaling.fit_covariate(np.array([*map(_number, texts[name])])))
    for name in named.numbers
  }
  categories = {name: entries(texts[name]) for name in named.categories}
  return {
    'covariates': covariates if named.moving else {},
    'numbers': numbers,
    'categories': categories,
  }


def entries(texts: Sequence[str]) -> list[str]:
  """Returns the values of a category, sorted; a missing one is none."""
  return sorted({*texts} - {''})


def is_category(texts: Sequence[str]) -> bool:
  """Returns whether a static column has a value that isn't a number."""
  return not all(text == '' or _is_number(text) for text in texts)


def check(data: Any) -> None:
  """Checks the names of columns against each other.

  Raises:
    InputError: a name is there twice, or is another column's.
  """
  taken = {data.id: 'data.id', data.time: 'data.time'}
  if not data.targets:
    taken[data.value] = 'data.value'
  for role in ('targets', 'known', 'observed', 'static'):
    names = getattr(data, role)
    for name in names:
      key = f'data.{role}'
      of_series = role == 'static' and name == data.id
      if not name or (name in taken and not of_series):
        errors.refuse(
          key,
          names,
          f'{name!r} is also in {taken.get(name, key)}: give each column once',
        )
      taken[name] = key
    if names and data.table not in ('auto', 'long'):
      errors.refuse(
        'data.table',
        data.table,
        f"data.{role}={names!r} are columns of a long table: give 'long'",
      )
  for name in data.categories:
    if name not in data.static:
      errors.refuse(
        'data.categories',
        data.categories,
        f'{name!r} is not in data.static={data.static!r}: add it there',
      )


def numbers(
  key: str, names: tuple[str, ...], given: Mapping[str, Any], rows: int = 0
) -> np.ndarray:
  """Returns numbers that come with a reading, rows x columns, float64.

  Args:
    key: that they are given by, 'known' or 'observed'.
    names: the columns of data.known or data.observed.
    given: by column, numbers or lists of them.
    rows: how many there must be; NaN is missing then. 0: any number, none of
      which is missing.

  Raises:
    InputError: a column is missing or isn't the run's, or has no numbers.
  """
  if not given and not rows:
    return np.zeros((0, len(names)))
  if {*given} != {*names}:
    errors.refuse(
      key,
      [*given],
      f'this run has data.{key}={names!r}: give a number of each'
      if names
      else f'this run has no data.{key}: leave it out',
    )
  try:
    columns = [np.atleast_1d(np.asarray(given[x], np.float64)) for x in names]
  except (TypeError, ValueError):
    errors.refuse(key, dict(given), 'give numbers')
  lengths = {len(x) for x in columns if x.ndim == 1}
  if (
    any(x.ndim > 1 for x in columns)
    or len(lengths) > 1
    or (rows and lengths - {rows})
  ):
    errors.refuse(key, dict(given), f'give {rows or "as many"} of each column')
  made = np.stack(columns, 1) if columns else np.zeros((rows, 0))
  if np.isinf(made).any() or (not rows and np.isnan(made).any()):
    errors.refuse(key, dict(given), 'give finite numbers')
  return made


def _scaled_rows(rows_NxC, scales):
  """Returns rows as a run has them, float32."""
  with np.errstate(over='ignore'):  # what is too large is refused
    columns = [
      scale.apply(column)
      for scale, column in zip(scales, rows_NxC.T, strict=True)
    ]
  scaled_NxC = np.reshape(columns, rows_NxC.T.shape).T
  for n, column in np.argwhere(np.abs(scaled_NxC) > LARGEST):
    raise errors.InputError(
      f'a covariate is {rows_NxC[n, column]:g}, more than {LARGEST:g} times '
      'the scale that it has in training: correct it'
    )
  return scaled_NxC.astype(np.float32)


def _entry(values, text):
  """Returns the entry of a category, 0 if it is unknown."""
  place = bisect.bisect_left(values, text)
  return place + 1 if values[place : place + 1] == [text] else 0


def _number(text):
  return float(text) if _is_number(text) else np.nan


def _is_number(text):
  try:
    return bool(np.isfinite(float(text)))
  except ValueError:
    return False


def _scale(pair):
  loc, scale = pair
  return scaling.Scale(loc, scale)


def _pair(scale):
  return [scale.loc, scale.scale]
