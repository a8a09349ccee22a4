"""What a run costs: figures of a row of runs.jsonl other than scores.

Every run's own metrics give seconds (of training, with the compilation),
step_seconds and tokens_per_second (both without it), step_bytes,
peak_memory_bytes, parameters and state_bytes (of one row's recurrent state).
step_bytes is the memory of the largest
training step as its compiler counts it, the same in each run of a program:
variants are compared by it. The peak of a process depends on what else it did
and on the allocator, and is only shown. A grid with the command 'profile' adds
the memory of the parts of a step by launch.profile, and replaces step_bytes and
step_seconds by its own; one with 'find_batch_size' adds the rows that fit in
the grid's memory_gib.
"""

import pathlib
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax.system import files

PROFILE = 'profile'  # a folder in the run's folder
COMMANDS = ('profile', 'find_batch_size')  # that measure costs


class Cost(NamedTuple):
  """A figure of a run other than a score; keys of bytes end in _bytes."""

  key: str
  label: str
  better: str  # 'higher', 'lower' or '' for neither


COSTS = (
  Cost('seconds', 'training s', 'lower'),
  Cost('tokens_per_second', 'tokens/s', 'higher'),
  Cost('step_bytes', 'step MiB, compiled', 'lower'),
  Cost('peak_memory_bytes', 'process peak MiB', ''),
  Cost('parameters', 'parameters', ''),
  Cost('state_bytes', 'state of a row KiB', ''),
  Cost('step_seconds', 'step s', 'lower'),
  Cost('compile_seconds', 'compile s', 'lower'),
  Cost('forward_bytes', 'forward MiB', 'lower'),
  Cost('kept_bytes', 'kept MiB', 'lower'),
  Cost('backward_bytes', 'backward MiB', 'lower'),
  Cost('largest_batch', 'largest batch', 'higher'),
)
# What is shown as memory and time: the first that rows have.
MEMORY = ('step_bytes', 'peak_memory_bytes')
TIME = ('step_seconds', 'seconds')
RANKED = (('step_bytes',), 'memory'), (TIME, 'time')
# What another machine takes says nothing about a variant.
OF_MACHINE = {'seconds', 'tokens_per_second', 'step_seconds', 'compile_seconds'}
TITLES = {
  'step_bytes': 'Memory of a compiled step',
  'step_seconds': 'Time of a step',
  'seconds': 'Time of a training with its compilation',
}


def has_times(row: dict[str, Any]) -> bool:
  """Whether a row says how long anything took."""
  return any(row.get(key) for key in OF_MACHINE)


def present(rows: Iterable[dict[str, Any]], one_machine: bool) -> list[Cost]:
  """Returns the costs that any of the rows has.

  Args:
    rows: of runs.
    one_machine: whether all times are of the same; else they are left out.
  """
  keys = {key for row in rows for key, value in row.items() if value}
  if not one_machine:
    keys -= OF_MACHINE
  return [cost for cost in COSTS if cost.key in keys]


def first(keys: Sequence[str], costs: Iterable[dict[str, str]]) -> str:
  """Returns the first of `keys` among a summary's costs; else the last key."""
  known = {cost['key'] for cost in costs}
  return next((key for key in keys if key in known), keys[-1])


def of_profile(folder: pathlib.Path) -> dict[str, float]:
  """Returns the costs in a profile's folder, launch.profile's --workdir."""
  profile = files.read_json(folder / 'profile.json')
  memory, time = profile['memory'], profile['time']
  programs = memory['programs']
  return {
    'step_seconds': time['median'],
    'compile_seconds': time['compile_seconds'],
    'forward_bytes': programs['forward']['total'],
    'kept_bytes': memory['kept_for_backward'],
    'backward_bytes': programs['forward + backward']['total'],
    'step_bytes': programs['training step']['total'],
  }
