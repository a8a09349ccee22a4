"""The wall time of a run by part, over all of its processes in turn.

    startup      from the start to the first batch: data, restoring
    compile      calls of a step that had to be compiled first
    data         waiting for batches
    steps        training, the purpose of the others
    checkpoint   saves, as far as training waits for them
    evaluation   held-out evaluations, with their compilation
    lost         all work after the checkpoint that a run resumes from

At any time one part is running, so the fractions add up to 1; that of `steps`
is the goodput. The time between one process's end and the next one's start
doesn't count. WORKDIR/goodput.json holds the seconds as of the last row of
metrics, and the machine; a checkpoint holds the seconds as of its step. What
the file has beyond the checkpoint was lost when a process was killed.
"""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping

from rnn_jax.system import files
from rnn_jax.system import provenance

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
  """Counts each second for one part; starts with 'startup'."""

  def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
    self._now = now
    self._spent = dict.fromkeys(PARTS, 0.0)
    self._part, self._since = 'startup', now()

  def enter(self, part: str) -> str:
    """Counts the time from now on for `part`. Returns the previous part."""
    now, before = self._now(), self._part
    self._spent[before] += now - self._since
    self._part, self._since = part, now
    return before

  @contextlib.contextmanager
  def part(self, name: str) -> Iterator[None]:
    """Counts the time inside for `name`, then continues as before."""
    before = self.enter(name)
    try:
      yield
    finally:
      self.enter(before)

  def rename(self, name: str) -> None:
    """Counts the time since the last change for `name` instead."""
    self._part = name

  def seconds(self) -> dict[str, float]:
    """Returns the seconds of each part so far."""
    self.enter(self._part)
    return dict(self._spent)

  def resume(
    self, saved: Mapping[str, float], step: int, workdir: str | os.PathLike[str]
  ) -> None:
    """Adds the seconds of earlier processes.

    Args:
      saved: `seconds` of the checkpoint that the run resumes from; {} without
        one.
      step: of that checkpoint, or 0.
      workdir: the run's folder.
    """
    reached, known = _read(workdir)
    earlier = dict.fromkeys(PARTS, 0.0) | dict(saved)
    if reached > step:
      beyond = sum(known.values()) - sum(earlier.values())
      earlier['lost'] += max(beyond, 0.0)
    elif sum(known.values()) > sum(earlier.values()):
      earlier |= known  # it ended after a save, or before its first step
    for name in PARTS:
      self._spent[name] += earlier[name]


def fraction(seconds: Mapping[str, float], part: str) -> float:
  """Returns a part's fraction of all seconds."""
  return seconds[part] / max(sum(seconds.values()), 1e-9)


def write(
  workdir: str | os.PathLike[str], step: int, seconds: Mapping[str, float]
) -> None:
  """Writes goodput.json: "step", "machine", and "seconds", "shares" by part."""
  content = {
    'step': step,
    'machine': provenance.machine(),
    'seconds': seconds,
    'shares': {part: fraction(seconds, part) for part in seconds},
  }
  path = pathlib.Path(workdir) / NAME
  with files.may_be_missed(path):
    files.write_whole(path, files.to_json(content, indent=1) + '\n')


def table(seconds: Mapping[str, float]) -> str:
  """Returns a line for each part that took any time, the longest first."""
  lines = [f'wall time, {sum(seconds.values()):.1f} s:']
  for part, spent in sorted(seconds.items(), key=lambda x: x[1], reverse=True):
    if spent > 0:
      lines.append(
        f'  {part:<10} {spent:>9.1f} s {fraction(seconds, part):>6.1%}'
      )
  return '\n'.join(lines)


def machine_of(workdir: str | os.PathLike[str]) -> dict[str, str | int]:
  """Returns the machine that a run was last on; {} where it's unknown."""
  try:
    content = files.read_json(pathlib.Path(workdir) / NAME)
    return content.get('machine', {})
  except (OSError, ValueError, AttributeError):
    return {}


def _read(workdir):
  """Returns (step, seconds) of the file; (0, {}) if missing or damaged."""
  try:
    content = files.read_json(pathlib.Path(workdir) / NAME)
    seconds = {part: content['seconds'][part] for part in PARTS}
    return int(content['step']), seconds
  except (OSError, ValueError, KeyError, TypeError):
    return 0, {}
