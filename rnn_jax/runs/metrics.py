"""The measurements of a run: metrics.jsonl, TensorBoard.

A row of metrics.jsonl is {"step": n, "split": "train", "loss": ..., ...}; rows
of "validation" have "best", 1 where no earlier evaluation was as good. What
isn't a finite number is null. A resumed run first drops the rows after the step
that it resumes from; lines that aren't rows move to metrics.jsonl.damaged.

None of it may cost a training step: what a full disk keeps out is written once
there is space, and TensorBoard's events are written by this thread, not by one
that could end and leave its queue full.
"""

import functools
import math
import os
import pathlib
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jax
from absl import logging

from rnn_jax import errors
from rnn_jax import files
from rnn_jax import host

NAME = 'metrics.jsonl'
DAMAGED = 'metrics.jsonl.damaged'

Row = dict[str, Any]


class Writer:
  """Appends rows; each is on disk when `write` returns, if there is space."""

  def __init__(self, workdir: str | os.PathLike[str], step: int) -> None:
    """Opens the files of a run that resumes from a step, or starts at 0.

    Raises:
      InputError: they can't be written.
    """
    self._path = pathlib.Path(workdir) / NAME
    self._folder = pathlib.Path(workdir) / 'tensorboard'
    self._purge_step = step + 1 if step else None
    self._waiting = b''  # bytes that the disk hasn't taken yet
    try:
      self._keep(step)
      self._file = open(self._path, 'ab', buffering=0)  # noqa: SIM115
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
    with files.may_be_missed(self._folder):
      for name, value in values.items():
        if value is not None:
          self._board.add(f'{split}/{name}', value, step)
      self._board.flush()

  def close(self) -> None:
    if self._waiting:
      rows = self._waiting.count(b'\n')
      logging.warning('%s lacks its last %d rows', self._path, rows)
    self._file.close()
    if '_board' in vars(self):
      with files.may_be_missed(self._folder):
        self._board.close()

  @functools.cached_property
  def _board(self):
    return _Board(self._folder, self._purge_step)

  def _keep(self, step):
    """Rewrites the file without later rows and damaged lines."""
    rows, damaged = _parsed(self._path)
    if damaged:
      with open(self._path.with_name(DAMAGED), 'a', encoding='utf-8') as file:
        file.writelines(f'{line}\n' for _, line in damaged)
    kept = [line for line, row in rows if row['step'] <= step]
    files.write_whole(self._path, ''.join(f'{line}\n' for line in kept))


class _Board:
  """TensorBoard's events, written by the thread that calls."""

  def __init__(self, folder, purge_step):
    # Imported late: it takes as long as many steps.
    from tensorboardX import event_file_writer
    from tensorboardX import summary
    from tensorboardX.proto import event_pb2

    folder.mkdir(parents=True, exist_ok=True)
    self._event, self._scalar = event_pb2.Event, summary.scalar
    self._writer = event_file_writer.EventsWriter(str(folder / 'events'))
    if purge_step is not None:
      start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
      self._write(step=purge_step, session_log=start)

  def add(self, name, value, step):
    self._write(step=step, summary=self._scalar(name, value))

  def flush(self):
    self._writer.flush()

  def close(self):
    self._writer.close()

  def _write(self, **fields):
    self._writer.write_event(self._event(wall_time=time.time(), **fields))


class NoWriter:
  """The writer of a process that isn't the first one: it writes nothing."""

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    pass

  def close(self) -> None:
    pass


def read(workdir: str | os.PathLike[str]) -> list[Row]:
  """Returns the rows of a run; null is NaN.

  A damaged line is left out, with a warning unless it's the last one, which a
  crash may have truncated.
  """
  path = pathlib.Path(workdir) / NAME
  rows, damaged = _parsed(path)
  last = len(rows) + len(damaged)
  for number, _ in damaged:
    if number < last:
      logging.warning('%s, line %d is damaged and left out', path, number)
  return [row for _, row in rows]


def _parsed(path):
  """Returns [(line, row)] and [(number, line)] of the damaged ones."""
  rows, damaged = [], []
  lines = path.read_text(errors='replace').split('\n') if path.exists() else []
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


def best(rows: Sequence[Row]) -> Row:
  """Returns the row of the best evaluation; {} without one."""
  return next((row for row in reversed(rows) if row.get('best')), {})


def peak_memory_bytes() -> int:
  """Returns the device's peak, or else the process's resident peak."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'peak_bytes_in_use' in stats:
    return stats['peak_bytes_in_use']
  return host.process_peak()
