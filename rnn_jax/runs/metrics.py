"""Where measurements of a run go: metrics.jsonl, TensorBoard.

A row of metrics.jsonl is {"step": n, "split": "train", "loss": ..., ...}; of
"validation" with "best", 1 where no evaluation before was as good. A resumed
run first drops the rows behind the step that it resumes from.
"""

import functools
import json
import pathlib

import jax

from rnn_jax import files
from rnn_jax import host

NAME = 'metrics.jsonl'


class Writer:
  """Appends rows; each is on disk when `write` returns."""

  def __init__(self, workdir, step):
    self._path = pathlib.Path(workdir) / NAME
    kept = [row for row in read(workdir) if row['step'] <= step]
    lines = (json.dumps(row) + '\n' for row in kept)
    files.write_whole(self._path, ''.join(lines))
    self._file = self._path.open('a')
    self._folder = str(pathlib.Path(workdir) / 'tensorboard')
    self._purge_step = step + 1 if step else None

  def write(self, step, split, values):
    row = {'step': step, 'split': split, **values}
    self._file.write(json.dumps(row) + '\n')
    self._file.flush()
    for name, value in values.items():
      self._board.add_scalar(f'{split}/{name}', value, step)

  def close(self):
    self._file.close()
    if '_board' in vars(self):
      self._board.close()

  @functools.cached_property
  def _board(self):
    # Its import takes as long as many steps: the first step doesn't wait.
    import tensorboardX

    return tensorboardX.SummaryWriter(self._folder, purge_step=self._purge_step)


class NoWriter:
  """What a process has that leaves writing to another."""

  def write(self, step, split, values):
    pass

  def close(self):
    pass


def read(workdir):
  """The rows of a run, a list; a last line cut by a crash is left out."""
  path = pathlib.Path(workdir) / NAME
  rows = []
  if path.exists():
    for line in path.read_text().splitlines():
      try:
        rows.append(json.loads(line))
      except json.JSONDecodeError:
        break
  return rows


def best(rows):
  """The row of the best evaluation, {} where there is none."""
  return next((row for row in reversed(rows) if row.get('best')), {})


def peak_memory_bytes():
  """The device's peak where it tells; else this process's resident peak."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'peak_bytes_in_use' in stats:
    return stats['peak_bytes_in_use']
  return host.process_peak()
