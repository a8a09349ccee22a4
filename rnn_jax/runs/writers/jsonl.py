"""metrics.jsonl, which every run has: reports, plots and the best read it.

A row is {"step": n, "split": "train", "loss": ..., ...}; rows of "validation"
have "best", 1 where no earlier evaluation was as good. What isn't a finite
number is null. A resumed run first drops the rows after the step that it
resumes from; lines that aren't rows move to metrics.jsonl.damaged.

What a full disk keeps out is written once there is space.
"""

import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import logging

from rnn_jax import errors
from rnn_jax.system import files

NAME = 'metrics.jsonl'
DAMAGED = 'metrics.jsonl.damaged'

MAX_BYTES = 2**29  # bytes of a file of metrics
Row = dict[str, Any]


class Writer:
  """Appends rows; each is on disk when `write` returns, if there is space."""

  def __init__(self, workdir: str | os.PathLike[str], step: int) -> None:
    """Opens the file of a run that resumes from a step, or starts at 0.

    Raises:
      InputError: it can't be written.
    """
    self._path = pathlib.Path(workdir) / NAME
    self._waiting = b''  # bytes that the disk hasn't taken yet
    try:
      self._keep(step)
      self._file = files.open_append(self._path)
    except OSError as error:
      raise errors.InputError(
        errors.explain(error) or f'{self._path}: {error.strerror}'
      ) from error

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Appends a row."""
    row = {'step': step, 'split': split, **values}
    self._waiting += files.to_json(row).encode() + b'\n'
    with files.may_be_missed(self._path):
      while self._waiting:
        taken = self._file.write(self._waiting)
        self._waiting = self._waiting[taken:]

  def close(self) -> None:
    if self._waiting:
      rows = self._waiting.count(b'\n')
      logging.warning('%s lacks its last %d rows', self._path, rows)
    self._file.close()

  def _keep(self, step):
    """Rewrites the file without later rows and damaged lines."""
    rows, damaged = parse(self._path)
    if damaged:
      with files.open_append(self._path.with_name(DAMAGED)) as file:
        file.write(''.join(f'{line}\n' for _, line in damaged).encode())
    kept = [line for line, row in rows if row['step'] <= step]
    files.write_whole(self._path, ''.join(f'{line}\n' for line in kept))


def make(workdir: str | os.PathLike[str], step: int) -> Writer:
  """Returns the writer of a run that starts after a step."""
  return Writer(workdir, step)


def parse(
  path: pathlib.Path,
) -> tuple[list[tuple[str, Row]], list[tuple[int, str]]]:
  """Returns [(line, row)], and [(number, line)] of the damaged lines.

  Raises:
    InputError: it isn't a file, or is too large.
  """
  rows, damaged = [], []
  try:
    content = files.read_bytes(path, MAX_BYTES) if path.exists() else b''
  except ValueError as error:
    raise errors.InputError(f'{path}: {error}: remove it') from error
  lines = content.decode(errors='replace').split('\n')
  for number, line in enumerate(filter(None, lines), 1):
    try:
      row = files.from_json(line)
      if not (
        isinstance(row, dict)
        and isinstance(row.get('step'), int)
        and isinstance(row.get('split'), str)
      ):
        raise ValueError('not a row')
    except ValueError:
      damaged.append((number, line))
      continue
    known = {k: math.nan if x is None else x for k, x in row.items()}
    rows.append((line, known))
  return rows, damaged
