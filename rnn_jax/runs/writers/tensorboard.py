"""TensorBoard's events, in WORKDIR/tensorboard.

The thread that calls writes them, not one that could end and leave its queue
full. View them with `tensorboard --logdir=WORKDIR`, also while a run trains.
"""

import functools
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from rnn_jax.system import files

FOLDER = 'tensorboard'


class Writer:
  """Appends events; they are on disk when `write` returns."""

  def __init__(self, workdir: str | os.PathLike[str], step: int) -> None:
    self._folder = pathlib.Path(workdir) / FOLDER
    self._purge_step = step + 1 if step else None

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Appends an event for each number."""
    with files.may_be_missed(self._folder):
      for name, value in values.items():
        if value is not None:
          self._events.add(f'{split}/{name}', value, step)
      self._events.flush()

  def close(self) -> None:
    if '_events' in vars(self):
      with files.may_be_missed(self._folder):
        self._events.close()

  @functools.cached_property
  def _events(self):
    return _Events(self._folder, self._purge_step)


def make(workdir: str | os.PathLike[str], step: int) -> Writer:
  """Returns the writer of a run that starts after a step."""
  return Writer(workdir, step)


class _Events:
  """A file of events."""

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
