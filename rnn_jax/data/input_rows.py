"""Rows that a user gives to a trained model: from a file, or as they arrive.

    rows = open_rows('reviews.csv')
    for example in rows: example.where, example.values

The formats are those of launch.prepare (data/preparation/formats), with their
limits. Standard input, '-', is JSON Lines or lines of text.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

from rnn_jax import errors
from rnn_jax import standard_input
from rnn_jax.data.preparation import classes as classes_lib
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs
from rnn_jax.data.preparation import lines
from rnn_jax.data.preparation.formats import jsonl
from rnn_jax.data.preparation.formats import text
from rnn_jax.data.text import documents

STREAMS = {'jsonl': jsonl.parse, 'text': text.parse}  # formats of lines
FORMATS = ('csv', 'jsonl', 'parquet', 'text')
LONGEST = 64 * 2**20  # bytes of a line of standard input


@dataclasses.dataclass(frozen=True)
class Source:
  """Where rows come from.

  Attributes:
    path: a file, or '-'.
    format: one of FORMATS; '' shows in the name, or in the first line of '-'.
    flag: what names it in messages.
  """

  path: str
  format: str = ''
  flag: str = '--input'

  def check(self) -> None:
    """Checks that there is such a file, without reading it.

    Raises:
      InputError: there isn't, it is empty, or its format isn't known.
    """
    if self.format and self.format not in FORMATS:
      errors.refuse('--format', self.format, f'choose one of {FORMATS}')
    if self.path == standard_input.DASH:
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
    self.known_format()

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
      yield from read(self.path, examples.Options())
      return
    given = _standard_input()
    first = next(((w, line) for w, line in given if line.strip()), None)
    if first is None:
      raise errors.InputError(f'{self.flag}=-: standard input is empty')
    looks = 'jsonl' if first[1].lstrip().startswith('{') else 'text'
    yield from STREAMS[self.format or looks](itertools.chain([first], given))


def check_exists(path: str, flag: str) -> None:
  """Raises InputError unless there is such a file or folder."""
  if not os.path.exists(path):
    errors.refuse(
      flag, path, f'no such file (searched in {os.path.abspath(path)})'
    )


def text_of(example: examples.Example, column: str, flag: str = '') -> str:
  """Returns the text in a column; of a list, a line for each item.

  Args:
    example: a row.
    column: its name.
    flag: which names another column; '': none does.

  Raises:
    InputError: there is no such column, or it has no text.
  """
  value = value_of(example, column, flag)
  if isinstance(value, list) and all(isinstance(x, str) for x in value):
    return documents.join_lines(value)
  if not isinstance(value, str):
    other = f', or name another column in {flag}' if flag else ''
    raise errors.InputError(
      f'{example.where}: {column!r} is {type(value).__name__}, not text: fix '
      f'it{other}'
    )
  return value


def value_of(example: examples.Example, column: str, flag: str = '') -> Any:
  """Returns the value in a column; the arguments are those of `text_of`.

  Raises:
    InputError: there is no such column; the message lists those that exist.
  """
  if column not in example.values:
    known = [*example.values]
    remedy = (
      f'name one of {known} in {flag}' if flag else f'rename one of {known}'
    )
    raise errors.InputError(f'{example.where}: no column {column!r}: {remedy}')
  return example.values[column]


def label_of(
  example: examples.Example, column: str, classes: tuple[str, ...]
) -> int:
  """Returns the number of the class in a column, by its name or number.

  Raises:
    InputError: there is no such column, or it has another value.
  """
  value = value_of(example, column)
  number = classes_lib.number(value, classes)
  if number is None:
    raise errors.InputError(
      f"{example.where}: {column}={value!r} isn't one of the run's classes "
      f'{[*classes]}, nor one of their numbers from 0: correct it'
    )
  return number


def _standard_input():
  """Yields ('standard input:line', the line without its end)."""
  number = 0
  while line := sys.stdin.buffer.readline(LONGEST + 1):
    number += 1
    where = f'standard input:{number}'
    if len(line) > LONGEST:
      raise errors.InputError(
        f'{where}: longer than {LONGEST:,} bytes: split it'
      )
    decoded = lines.decode(line.removesuffix(b'\n'), 'utf-8', where)
    if number == 1:
      decoded = decoded.removeprefix(lines.MARK)
    yield where, decoded.removesuffix('\r')
