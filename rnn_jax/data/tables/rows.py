"""Rows of any format, each with its place: the one door to tables.

    for where, values, _ in Source('reviews.csv').rows(): ...

A format is a file here with SUFFIXES and `read`. What rows have in their
columns is in values.py. Standard input, '-', is JSON Lines or lines of text.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from rnn_jax import errors
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import jsonl
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import parquet
from rnn_jax.data.tables import text
from rnn_jax.data.tables import values
from rnn_jax.system import standard_input

FORMATS: dict[str, ModuleType] = {
  'csv': csv,
  'jsonl': jsonl,
  'parquet': parquet,
  'text': text,
}
STREAMS = {'jsonl': jsonl.parse, 'text': text.parse}  # formats of lines
DELIMITER = '--delimiter'


@dataclasses.dataclass(frozen=True)
class Source:
  """Where rows come from.

  Attributes:
    path: a file, or '-'.
    format: one of FORMATS; '' shows in the name, or in the first line of '-'.
    delimiter: between the values of a CSV file; '': its header shows it.
    flag: what names the path in messages.
  """

  path: str
  format: str = ''
  delimiter: str = ''
  flag: str = '--input'

  def check(self) -> None:
    """Checks that there is such a file, without reading it.

    Raises:
      InputError: there isn't, it is empty, or its format isn't known.
    """
    if self.format and self.format not in FORMATS:
      errors.refuse('--format', self.format, f'choose one of {(*FORMATS,)}')
    csv.check_delimiter(self.delimiter, DELIMITER)
    if self.path == standard_input.DASH:
      self._check_delimited(standard_input.NAME)
      if self.format and self.format not in STREAMS:
        errors.refuse(
          '--format',
          self.format,
          f'standard input is one of {tuple(STREAMS)}: give those, or a file',
        )
      return
    check_exists(self.path, self.flag)
    if os.path.isdir(self.path):
      errors.refuse(self.flag, self.path, 'a folder: give a file')
    if not os.path.getsize(self.path):
      errors.refuse(self.flag, self.path, 'the file is empty: fill it')
    if self.known_format() != 'csv':
      self._check_delimited(self.path)

  def known_format(self) -> str:
    """Returns the format, by the file's name if it isn't given.

    Raises:
      InputError: the name doesn't show it.
    """
    if self.format:
      return self.format
    if name := format_of(self.path):
      return name
    suffixes = [s for each in FORMATS.values() for s in each.SUFFIXES]
    return errors.refuse(
      self.flag,
      self.path,
      f"its name doesn't show its format: name it one of {suffixes}, or give "
      f'--format, one of {(*FORMATS,)}',
    )

  def rows(self) -> Iterator[values.Row]:
    """Yields the rows.

    Raises:
      InputError: as `check`; or a row is malformed, after those before it.
    """
    if self.path != standard_input.DASH:
      options = lines.Options(delimiter=self.delimiter)
      yield from FORMATS[self.known_format()].read(self.path, options)
      return
    given = _standard_input()
    first = next(((w, line) for w, line in given if line.strip()), None)
    if first is None:
      raise errors.InputError(f'{self.flag}=-: standard input is empty')
    looks = 'jsonl' if first[1].lstrip().startswith('{') else 'text'
    yield from STREAMS[self.format or looks](itertools.chain([first], given))

  def _check_delimited(self, name):
    if self.delimiter:
      errors.refuse(
        DELIMITER, self.delimiter, f'{name} is not CSV, it has none: omit it'
      )


def format_of(path: str) -> str:
  """Returns the format that a file's name shows, or ''."""
  name = path.lower()
  shown = (n for n, each in FORMATS.items() if name.endswith(each.SUFFIXES))
  return next(shown, '')


def check_exists(path: str, flag: str) -> None:
  """Raises InputError unless there is such a file or folder."""
  if not os.path.exists(path):
    errors.refuse(
      flag, path, f'no such file (searched in {os.path.abspath(path)})'
    )


def _standard_input():
  """Yields ('standard input:line', the line without its end)."""
  for where, line in lines.located(sys.stdin.buffer, standard_input.NAME):
    decoded = lines.decode(line.removesuffix(b'\n'), 'utf-8', where)
    yield where, decoded.removesuffix('\r')
