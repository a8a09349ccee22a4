"""Files of tables: which a path names, and what each holds.

pandas reads them: CSV as strings, Parquet with its types. NumPy reads .npz.
"""

import csv
import glob
import os
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.system import bounds

SUFFIXES = '.csv', '.tsv', '.txt', '.parquet', '.npz'
MAX_COLUMNS = 100_000
HEADER = 2**24  # bytes of a header, at most


def files(path: str, suffixes: tuple[str, ...] = SUFFIXES) -> list[str]:
  """Returns the files that a path, a glob or a folder names; [] if none."""
  if os.path.isdir(path):
    path = os.path.join(glob.escape(path), '*')
  elif os.path.exists(path):
    return [path]
  return sorted(x for x in glob.glob(path) if x.lower().endswith(suffixes))


def existing(
  path: str, key: str, suffixes: tuple[str, ...] = SUFFIXES
) -> list[str]:
  """Returns the files that a path, a glob or a folder names.

  Raises:
    InputError: there is none; `key` names the path in the message.
  """
  if not path:
    errors.refuse(key, path, f'name a file, one of {suffixes}')
  if not (found := files(path, suffixes)):
    raise errors.InputError(
      f'{key}={path!r} matches no file, one of {suffixes}; check the pattern '
      f'(searched in {os.path.abspath(".")})'
    )
  for file in found:
    if os.path.splitext(file)[1].lower() not in suffixes:
      errors.refuse(key, file, f'its name ends with none of {suffixes}')
    if not os.path.getsize(file):
      errors.refuse(key, file, 'the file is empty: fill it')
    bounds.check(4 * os.path.getsize(file), f'{key}={file}', 'split the file')
  return found


def read_frame(file: str) -> tuple[Any, str, int]:
  """Returns (a CSV or Parquet table, its file, the line of its first row).

  Raises:
    InputError: it isn't a table.
  """
  if not file.lower().endswith('.parquet'):
    return _read_csv(file), file, 2
  import pandas as pd  # takes long to import

  try:
    return pd.read_parquet(file), file, 1
  except (OSError, ValueError) as error:
    raise errors.InputError(
      f'{file}: not a Parquet table ({errors.first_line(error)}): restore a '
      'copy'
    ) from None


def read_npz(file: str) -> dict[str, np.ndarray]:
  """Returns the arrays of an .npz by their names.

  Raises:
    InputError: it isn't one.
  """
  try:
    with np.load(file, allow_pickle=False) as given:
      return {name: given[name] for name in given.files}
  except (OSError, ValueError, KeyError) as error:
    raise errors.InputError(
      f'{file}: not an .npz of numbers ({errors.first_line(error)}): write it '
      'with numpy.savez(FILE, name=array)'
    ) from None


def _read_csv(file):
  """Returns a table of strings."""
  import pandas as pd  # takes long to import

  try:
    with open(file, encoding='utf-8-sig', newline='') as opened:
      header = opened.readline(HEADER)
    delimiter = max(',;\t', key=header.count)
    columns = header.count(delimiter) + 1
    if columns > MAX_COLUMNS:
      raise errors.InputError(
        f'{file}:1: {columns:,} columns, more than {MAX_COLUMNS:,}: write a '
        'long table, unique_id,ds,y'
      )
    check_names(next(csv.reader([header], delimiter=delimiter), []), file)
    return pd.read_csv(
      file,
      dtype=str,
      sep=delimiter,
      encoding='utf-8-sig',
      keep_default_na=False,
      skip_blank_lines=False,
      skipinitialspace=True,
      index_col=False,
    )
  except UnicodeDecodeError:
    raise errors.InputError(f'{file}: not UTF-8: write it as UTF-8') from None
  except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
    reason = errors.first_line(error).removeprefix('Error tokenizing data. ')
    raise errors.InputError(f'{file}: {reason}: correct that line') from None


def check_names(columns: list[str], file: str) -> None:
  """Checks the names of a table's columns.

  Raises:
    InputError: two are the same.
  """
  if len({*columns}) < len(columns):
    twice = next(x for x in columns if columns.count(x) > 1)
    raise errors.InputError(
      f'{file}: two columns are named {twice!r}: rename one'
    )
