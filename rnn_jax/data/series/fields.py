"""Fields of a table's columns: numbers, times and texts.

A field is empty, or NA, NaN, null or none, where its value is missing. What is
no number, or no time, is refused with its file and line.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_jax import errors

MISSING = '', 'na', 'nan', 'null', 'none', '<na>', 'nat'


def numbers(column: Any, name: str, where: Callable[[int], str]) -> np.ndarray:
  """Returns a column as float64; NaN is missing.

  Args:
    column: a pandas Series of numbers, or of texts.
    name: of the column, for messages.
    where: the place of a row, for messages.

  Raises:
    InputError: a field is no number.
  """
  import pandas as pd  # takes long to import

  if pd.api.types.is_bool_dtype(column) or (
    pd.api.types.is_numeric_dtype(column)
  ):
    return column.to_numpy(np.float64, na_value=np.nan)
  values_N = pd.to_numeric(column, errors='coerce').to_numpy(
    np.float64, na_value=np.nan, copy=True
  )
  known = np.isfinite(values_N)
  # pandas is off by the last bit.
  values_N[known] = column.to_numpy(object)[known].astype(np.float64)
  for row in np.flatnonzero(np.isnan(values_N)).tolist():
    given = column.iloc[row]
    if not _is_missing(given):
      raise errors.InputError(
        f'{where(row)}: column {name!r} has '
        f"{str(given)[:40]!r}, which isn't a number: correct it, or leave "
        'the field empty where it is missing'
      )
  return values_N


def times(
  column: Any, name: str, where: Callable[[int], str]
) -> tuple[np.ndarray, bool]:
  """Returns (a column of times as int64, whether they are dates).

  Dates are in nanoseconds since 1970, in UTC where they have a zone.

  Args:
    column: a pandas Series of integers, dates, or texts.
    name: of the column, for messages.
    where: the place of a row, for messages.

  Raises:
    InputError: a field is no time from 1678 to 2261.
  """
  import pandas as pd  # takes long to import

  given = column
  if pd.api.types.is_integer_dtype(column):
    return column.to_numpy(np.int64), False
  if not pd.api.types.is_datetime64_any_dtype(column):
    texts = column.astype(str)
    if texts.str.fullmatch(r'-?\d{1,15}').all() and not (
      texts.str.fullmatch(r'(1[6-9]|2[01])\d\d').all()
      or texts.str.fullmatch(r'(1[6-9]|2[01])\d\d[01]\d[0-3]\d').all()
    ):
      return texts.astype(np.int64).to_numpy(), False
    column = pd.to_datetime(
      texts, errors='coerce', utc=True, format=_format_of(texts)
    )
  column = column.dt.tz_convert('UTC') if column.dt.tz else column
  wrong = np.flatnonzero(column.isna()).tolist()
  if wrong:
    found = str(given.iloc[wrong[0]])[:40]
    raise errors.InputError(
      f"{where(wrong[0])}: column {name!r} has {found!r}, which isn't a time "
      'from 1678 to 2261: write times as 2026-01-31 23:00:00, all in one form'
    )
  plain = column.dt.tz_localize(None) if column.dt.tz else column
  try:
    return plain.to_numpy('M8[ns]').astype(np.int64), True
  except (ValueError, pd.errors.OutOfBoundsDatetime):
    raise errors.InputError(
      f'{where(0)}: column {name!r} has a time out of 1678 to 2261, here or '
      'below: correct it'
    ) from None


def _format_of(texts):
  """Returns the form that the first time has: ISO 8601, or what pandas sees."""
  first = texts.iloc[0]
  iso = len(first) >= 10 and first[:4].isdigit() and first[4] == '-'
  return 'ISO8601' if iso else None


def _is_missing(given):
  return given is None or str(given).strip().lower() in MISSING


def text(given: Any) -> str:
  """Returns a value as text: '' if it is missing; 2.0 is '2'."""
  if _is_missing(given):
    return ''
  plain = str(given).strip()
  whole = re.fullmatch(r'(-?\d+)\.0+', plain, re.A)
  return whole[1] if whole else plain


def shown(time: int, dated: bool, whole_days: bool = False) -> str:
  """Returns a time as text, of whole days without their hours."""
  if not dated:
    return str(time)
  text = str(np.datetime64(time, 'ns')).replace('T', ' ')
  for end in ('.000000000', ':00', ' 00:00' if whole_days else ':00'):
    text = text.removesuffix(end) if len(text) > 16 or whole_days else text
  return text


def shown_all(
  times_N: np.ndarray, dated: bool, whole_days: bool = False
) -> list[str]:
  """Returns times as text, each as of `shown`."""
  if not dated:
    return [*map(str, times_N.tolist())]
  minutes_N = times_N.astype('M8[ns]').astype('M8[m]')
  if not len(times_N) or (minutes_N != times_N.astype('M8[ns]')).any():
    return [shown(time, dated, whole_days) for time in times_N.tolist()]
  texts = np.datetime_as_string(minutes_N, unit='D' if whole_days else 'm')
  return '\n'.join(texts.tolist()).replace('T', ' ').split('\n')
