"""The measurements of a run: metrics.jsonl, and what `metrics.writers` name.

A writer is a file of runs/writers, or a module of the user, with

    make(workdir, step) -> Writer

`step` is that from which the run resumes, or 0. A Writer has write(step, split,
values), which adds a row of numbers by name, and close(). A file that needs a
package has check(), which refuses to start without it.

None of it may cost a training step: a writer that fails is a warning.
"""

import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jax
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax.runs.writers import jsonl
from rnn_jax.system import host

KEY = 'metrics.writers'
FOLDER = 'runs/writers'
ALWAYS = 'jsonl'

Row = jsonl.Row


def check(names: Sequence[str]) -> None:
  """Checks that writers exist and have the packages that they need.

  Raises:
    InputError: one doesn't.
  """
  for name in names:
    module = config_lib.load(FOLDER, name, KEY)
    getattr(module, 'check', lambda: None)()


class Writer:
  """Gives each row to metrics.jsonl and to the writers of a config."""

  def __init__(
    self,
    workdir: str | os.PathLike[str],
    step: int,
    names: Sequence[str] = config_lib.Metrics().writers,
  ) -> None:
    """Opens metrics.jsonl; the others open at the first row.

    Args:
      workdir: the run's folder.
      step: that it resumes from, or 0.
      names: of writers besides.

    Raises:
      InputError: metrics.jsonl can't be written.
    """
    self._rows = jsonl.make(workdir, step)
    others = dict.fromkeys(name for name in names if name != ALWAYS)
    self._others = [_Optional(name, workdir, step) for name in others]

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Writes a row."""
    self._rows.write(step, split, values)
    for other in self._others:
      other.write(step, split, values)

  def close(self) -> None:
    self._rows.close()
    for other in self._others:
      other.close()


class _Optional:
  """A writer that a run does without once it fails."""

  def __init__(self, name, workdir, step):
    self._name, self._begin = name, (workdir, step)
    self._writer = None
    self._failed = False

  def write(self, step, split, values):
    if self._failed:
      return
    try:
      if self._writer is None:
        module = config_lib.load(FOLDER, self._name, KEY)
        self._writer = module.make(*self._begin)
      self._writer.write(step, split, values)
    except Exception as error:  # another package's, or a server's
      self._give_up(error)

  def close(self):
    if self._failed or self._writer is None:
      return
    try:
      self._writer.close()
    except Exception as error:
      self._give_up(error)

  def _give_up(self, error):
    self._failed = True
    logging.warning(
      '%s: %r failed (%s: %s): the run continues without it',
      KEY,
      self._name,
      type(error).__name__,
      error,
    )


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
  path = pathlib.Path(workdir) / jsonl.NAME
  rows, damaged = jsonl.parse(path)
  last = len(rows) + len(damaged)
  for number, _ in damaged:
    if number < last:
      logging.warning('%s, line %d is damaged and left out', path, number)
  return [row for _, row in rows]


def best(rows: Sequence[Row]) -> Row:
  """Returns the row of the best evaluation; {} without one."""
  return next((row for row in reversed(rows) if row.get('best')), {})


def peak_memory_bytes() -> int:
  """Returns the device's peak, or else the process's resident peak."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'peak_bytes_in_use' in stats:
    return stats['peak_bytes_in_use']
  return host.process_peak()
