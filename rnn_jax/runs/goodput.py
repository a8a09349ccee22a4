"""Where the wall time of a run went, over all of its processes in turn.

    startup      from the start to the first batch: data, restoring
    compile      calls of a step that had to be compiled first
    data         waiting for batches
    steps        training: what all the rest is for
    checkpoint   saves, as far as the training waits for them
    evaluation   held-out passes, with their compilation
    lost         whatever was done behind the checkpoint that a run goes on from

At any time one part is running, so the shares add up to 1; that of `steps` is
the goodput. The time from one process's end to the next one's start counts as
nothing. WORKDIR/goodput.json holds the seconds as of the last row of metrics,
and the machine that they were spent on; a checkpoint holds them as of its step.
What the file has beyond the checkpoint is what was lost when a process was
killed.
"""

import contextlib
import json
import os
import pathlib
import time

from rnn_jax import files
from rnn_jax import provenance

NAME = 'goodput.json'
PARTS = (
  'startup',
  'compile',
  'data',
  'steps',
  'checkpoint',
  'evaluation',
  'lost',
)


class Clock:
  """Gives each second to one part; begins with 'startup'."""

  def __init__(self, now=time.monotonic):
    self._now = now
    self._spent = dict.fromkeys(PARTS, 0.0)
    self._part, self._since = 'startup', now()

  def enter(self, part: str) -> str:
    """Lets the time from now on go to `part`. Returns the one before."""
    now, before = self._now(), self._part
    self._spent[before] += now - self._since
    self._part, self._since = part, now
    return before

  @contextlib.contextmanager
  def part(self, name: str):
    """Gives the time within to `name`, then goes on as before."""
    before = self.enter(name)
    try:
      yield
    finally:
      self.enter(before)

  def rename(self, name: str) -> None:
    """Gives the time since the last change to `name` instead."""
    self._part = name

  def seconds(self) -> dict[str, float]:
    """Returns the seconds of each part so far."""
    self.enter(self._part)
    return dict(self._spent)

  def resume(
    self, saved: dict[str, float], step: int, workdir: str | os.PathLike
  ) -> None:
    """Adds what earlier processes spent.

    Args:
      saved: `seconds` as in the checkpoint that the run goes on from; {} if it
        begins anew.
      step: of that checkpoint, or 0.
      workdir: the run's folder.
    """
    reached, known = _read(workdir)
    earlier = dict.fromkeys(PARTS, 0.0) | saved
    if reached > step:
      beyond = sum(known.values()) - sum(earlier.values())
      earlier['lost'] += max(beyond, 0.0)
    elif sum(known.values()) > sum(earlier.values()):
      earlier |= known  # it ended behind a save, or before its first step
    for name in PARTS:
      self._spent[name] += earlier[name]


def share(seconds: dict[str, float], part: str) -> float:
  """Returns a part's share of all seconds."""
  return seconds[part] / max(sum(seconds.values()), 1e-9)


def write(workdir: str | os.PathLike, step: int, seconds: dict) -> None:
  """Writes goodput.json: "step", "machine", and "seconds", "shares" by part."""
  shares = {part: share(seconds, part) for part in seconds}
  kept = {
    'step': step,
    'machine': provenance.machine(),
    'seconds': seconds,
    'shares': shares,
  }
  path = pathlib.Path(workdir) / NAME
  files.write_whole(path, json.dumps(kept, indent=1) + '\n')


def table(seconds: dict[str, float]) -> str:
  """Returns a line for each part that took any time, the longest first."""
  total = sum(seconds.values())
  lines = [f'where {total:.1f} s went:']
  for part in sorted(seconds, key=seconds.get, reverse=True):
    if seconds[part] > 0:
      lines.append(
        f'  {part:<10} {seconds[part]:>9.1f} s {share(seconds, part):>6.1%}'
      )
  return '\n'.join(lines)


def machine_of(workdir: str | os.PathLike) -> dict:
  """Returns the machine that a run was last on; {} where it's not told."""
  try:
    kept = json.loads((pathlib.Path(workdir) / NAME).read_text())
    return kept.get('machine', {})
  except (OSError, ValueError, AttributeError):
    return {}


def _read(workdir):
  """Returns (step, seconds) of the file; of none, or a damaged one, nothing."""
  try:
    kept = json.loads((pathlib.Path(workdir) / NAME).read_text())
    return int(kept['step']), {part: kept['seconds'][part] for part in PARTS}
  except (OSError, ValueError, KeyError, TypeError):
    return 0, {}
