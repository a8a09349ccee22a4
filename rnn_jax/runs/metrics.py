"""The measurements of a run: metrics.jsonl, TensorBoard.

A row of metrics.jsonl is {"step": n, "split": "train", "loss": ..., ...}; rows
of "validation" have "best", 1 where no earlier evaluation was as good. A
resumed run first drops the rows after the step that it resumes from.
"""

import functools
import json
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jax

from rnn_jax import files
from rnn_jax import host

NAME = 'metrics.jsonl'

Row = dict[str, Any]


class Writer:
  """Appends rows; each is on disk when `write` returns."""

  def __init__(self, workdir: str | os.PathLike[str], step: int) -> None:
    """Opens the files of a run that resumes from a step, or starts at 0."""
    self._path = pathlib.Path(workdir) / NAME
    kept = [row for row in read(workdir) if row['step'] <= step]
    lines = (json.dumps(row) + '\n' for row in kept)
    files.write_whole(self._path, ''.join(lines))
    self._file = self._path.open('a')
    self._folder = str(pathlib.Path(workdir) / 'tensorboard')
    self._purge_step = step + 1 if step else None

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Appends a row."""
    row = {'step': step, 'split': split, **values}
    self._file.write(json.dumps(row) + '\n')
    self._file.flush()
    for name, value in values.items():
      self._board.add_scalar(f'{split}/{name}', value, step)

  def close(self) -> None:
    self._file.close()
    if '_board' in vars(self):
      self._board.close()

  @functools.cached_property
  def _board(self):
    # Imported late: it takes as long as many steps.
    import tensorboardX

    return tensorboardX.SummaryWriter(self._folder, purge_step=self._purge_step)


class NoWriter:
  """The writer of a process that isn't the first one: it writes nothing."""

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    pass

  def close(self) -> None:
    pass


def read(workdir: str | os.PathLike[str]) -> list[Row]:
  """Returns the rows of a run, without a line that a crash has truncated."""
  path = pathlib.Path(workdir) / NAME
  rows = []
  if path.exists():
    for line in path.read_text().splitlines():
      try:
        rows.append(json.loads(line))
      except json.JSONDecodeError:
        break
  return rows


def best(rows: Sequence[Row]) -> Row:
  """Returns the row of the best evaluation; {} without one."""
  return next((row for row in reversed(rows) if row.get('best')), {})


def peak_memory_bytes() -> int:
  """Returns the device's peak, or else the process's resident peak."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'peak_bytes_in_use' in stats:
    return stats['peak_bytes_in_use']
  return host.process_peak()
