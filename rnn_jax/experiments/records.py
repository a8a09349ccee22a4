"""The records of runs: WORKDIR/runs.jsonl, a row for each that ended.

A row is {"variant", "seed", "status": one of STATUSES, "error": '' or why it
isn't done, "rung": 0, or that at which an eliminated run ended, "split",
"commands", "scores", "seconds" (of training, with compilation), "step_seconds"
and "tokens_per_second" (medians, without), "wall_seconds" (of the processes of
the last call), "step_bytes" (of a training step's program), "peak_memory_bytes"
(of the process, or of the device), "parameters", "state_bytes", "steps",
"overrides", "config", "versions", "commit", "ended"}. If a run has several
rows, the last counts.
"""

import datetime
import itertools
import math
import os
import pathlib
import platform
import statistics
from typing import IO
from typing import Any

from rnn_jax import errors
from rnn_jax.experiments import plan
from rnn_jax.runs import goodput
from rnn_jax.runs import metrics
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import files
from rnn_jax.system import provenance

NAME = 'runs.jsonl'
PACKAGES = ('jax', 'flax')
# Failed runs are retried; an eliminated one ended at a rung, see halving.py.
STATUSES = ('done', 'failed', 'diverged', 'eliminated')
# A row whose time includes a compilation differs in these from the one before.
COMPILED = ('first_step_seconds', 'compiled_programs')

Rows = dict[tuple[str, int], dict[str, Any]]  # {(variant, seed): row}


def open_folder(workdir: str) -> IO[str]:
  """Makes `workdir` a folder of experiments and returns its lock.

  Raises:
    InputError: it can't be created or written, holds something else, or
      another process has its lock.
  """
  folder = pathlib.Path(workdir)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted(set(os.listdir(folder)) - {workdir_lib.LOCK})
    if others and NAME not in others:
      raise errors.InputError(
        f"workdir={workdir!r} isn't a folder of experiments: it has no {NAME} "
        f'but {", ".join(others[:3])}: give a new or an empty folder'
      )
    lock = workdir_lib.take_lock(folder)
    (folder / NAME).touch()
  except OSError as error:
    raise errors.InputError(
      f'workdir={workdir!r}: {error.strerror}: give a folder that can be '
      'written'
    ) from error
  return lock


def read(workdir: str | os.PathLike) -> Rows:
  """Returns the last row of each run.

  Raises:
    InputError: a line that isn't the last is damaged.
  """
  path = pathlib.Path(workdir) / NAME
  lines = path.read_text().splitlines() if path.exists() else []
  rows = {}
  for number, line in enumerate(lines, 1):
    try:
      row = files.from_json(line)
      rows[row['variant'], row['seed']] = row
    except (ValueError, TypeError, KeyError) as error:
      if number == len(lines):
        break  # a crash truncated it: that run is repeated
      raise errors.InputError(
        f'{path}, line {number} is damaged: remove the line'
      ) from error
  return rows


def append(workdir: str | os.PathLike, row: dict[str, Any]) -> None:
  """Adds a row; it is on disk when this returns."""
  path = pathlib.Path(workdir) / NAME
  with open(path, 'a+b') as file:
    file.seek(0)
    whole, _, cut = file.read().rpartition(b'\n')
    if cut:
      file.truncate(len(whole) + 1 if whole else 0)
    file.write(files.to_json(row).encode() + b'\n')
    file.flush()
    os.fsync(file.fileno())


def describe(run: plan.Run, folder: pathlib.Path) -> dict[str, Any]:
  """Returns what a row says about a run in a folder, however it ended."""
  ended = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
  return {
    **measured(folder),
    **goodput.machine_of(folder),
    'overrides': run.overrides,
    'config': run.config,
    'versions': _versions(),
    'commit': provenance.commit(),
    'ended': ended,
  }


def measured(folder: pathlib.Path) -> dict[str, Any]:
  """Returns the figures in a run's own metrics; None for missing ones."""
  all_rows = metrics.read(folder)
  rows = [row for row in all_rows if row['split'] == 'train']
  keys = 'steps', 'seconds', 'step_bytes', 'peak_memory_bytes'
  figures = dict.fromkeys(keys)
  if rows:
    figures |= {
      'steps': rows[-1]['step'],
      'seconds': sum(row['seconds'] for row in rows),
      'step_bytes': max(row.get('step_bytes') or 0 for row in rows) or None,
      'peak_memory_bytes': max(row['peak_memory_bytes'] for row in rows),
    }
  return figures | _rates(rows) | {'curve': _curve(all_rows)}


def _rates(rows):
  """Returns medians over the rows without a compilation; None without any."""
  steady = [
    (row['seconds'] / (row['step'] - before['step']), row['tokens_per_second'])
    for before, row in itertools.pairwise(rows)
    if all(before.get(key) == row.get(key) for key in COMPILED)
  ]
  seconds, tokens = zip(*steady, strict=True) if steady else ([], [])
  return {
    'step_seconds': statistics.median(seconds) if seconds else None,
    'tokens_per_second': statistics.median(tokens) if tokens else None,
  }


def _curve(rows):
  """Returns [step, training seconds until then, loss] of each evaluation."""
  points, seconds = [], 0.0
  for row in rows:
    if row['split'] == 'train':
      seconds += row['seconds']
    elif row['split'] == 'validation' and math.isfinite(row['loss']):
      points.append([row['step'], seconds, row['loss']])
  return points


def best_scores(
  folder: pathlib.Path, until: int | None = None
) -> dict[str, Any]:
  """Returns the validation row of the best evaluation, {} without one.

  Args:
    folder: of a run.
    until: the last step that counts; None: the run's.
  """
  rows = metrics.read(folder)
  return metrics.best(
    [row for row in rows if until is None or row['step'] <= until]
  )


def last_evaluation(folder: pathlib.Path) -> int:
  """Returns the step of a run's last evaluation, 0 without one."""
  rows = metrics.read(folder)
  steps = [row['step'] for row in rows if row['split'] == 'validation']
  return max(steps, default=0)


def _versions():
  return {'python': platform.python_version(), **provenance.versions(PACKAGES)}
