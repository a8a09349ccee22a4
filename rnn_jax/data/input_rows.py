"""Rows that a user gives to a trained model: from a file, or as they arrive.

    rows = open_rows('reviews.csv')
    for example in rows: example.where, example.values

The formats are those of launch.prepare (data/preparation/formats), with their
limits; what the rows have in their columns is in data/tables/values.py.
Standard input, '-', is JSON Lines or lines of text.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs
from rnn_jax.data.preparation.formats import jsonl
from rnn_jax.data.preparation.formats import text
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import lines
from rnn_jax.system import standard_input

STREAMS = {'jsonl': jsonl.parse, 'text': text.parse}  # formats of lines
FORMATS = ('csv', 'jsonl', 'parquet', 'text')
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
      errors.refuse('--format', self.format, f'choose one of {FORMATS}')
    csv.check_delimiter(self.delimiter, DELIMITER)
    if self.path == standard_input.DASH:
      self._check_delimited('standard input')
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
    for name in FORMATS:
      if self.path.lower().endswith(inputs.load_format(name).SUFFIXES):
        return name
    suffixes = [s for n in FORMATS for s in inputs.load_format(n).SUFFIXES]
    return errors.refuse(
      self.flag,
      self.path,
      f"its name doesn't show its format: name it one of {suffixes}, or give "
      f'--format, one of {FORMATS}',
    )

  def rows(self) -> Iterator[examples.Example]:
    """Yields the rows.

    Raises:
      InputError: as `check`; or a row is malformed, after those before it.
    """
    if self.path != standard_input.DASH:
      read = inputs.load_format(self.known_format()).read
      options = examples.Options(delimiter=self.delimiter)
      yield from read(self.path, options)
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


def check_exists(path: str, flag: str) -> None:
  """Raises InputError unless there is such a file or folder."""
  if not os.path.exists(path):
    errors.refuse(
      flag, path, f'no such file (searched in {os.path.abspath(path)})'
    )


def _standard_input():
  """Yields ('standard input:line', the line without its end)."""
  for where, line in lines.located(sys.stdin.buffer, 'standard input'):
    decoded = lines.decode(line.removesuffix(b'\n'), 'utf-8', where)
    yield where, decoded.removesuffix('\r')
