"""What a run costs: figures of a row of runs.jsonl that are no scores.

Every run's own metrics give seconds, tokens_per_second, peak_memory_bytes and
parameters. A grid with the command 'profile' adds what launch.profile finds of
the training step, by the compiler and in seconds, and 'find_batch_size' the
rows that fit in the grid's memory_gib.
"""

import json
import pathlib
import typing

PROFILE = 'profile'  # a folder of the run's


class Cost(typing.NamedTuple):
  """A figure of a run that is no score; keys of bytes end in _bytes."""

  key: str
  label: str
  better: str  # 'higher', 'lower' or '', where neither is


COSTS = (
  Cost('seconds', 'training s', 'lower'),
  Cost('tokens_per_second', 'tokens/s', 'higher'),
  Cost('peak_memory_bytes', 'peak MiB', 'lower'),
  Cost('parameters', 'parameters', ''),
  Cost('step_seconds', 'step s', 'lower'),
  Cost('compile_seconds', 'compile s', 'lower'),
  Cost('forward_bytes', 'forward MiB', 'lower'),
  Cost('kept_bytes', 'kept MiB', 'lower'),
  Cost('backward_bytes', 'backward MiB', 'lower'),
  Cost('step_bytes', 'step MiB', 'lower'),
  Cost('largest_batch', 'largest batch', 'higher'),
)
MEMORY = ('step_bytes', 'peak_memory_bytes')  # the first that rows have
TIME = ('step_seconds', 'seconds')


def present(rows: typing.Iterable[dict]) -> list[Cost]:
  """Returns the costs that any of the rows has."""
  keys = {key for row in rows for key, value in row.items() if value}
  return [cost for cost in COSTS if cost.key in keys]


def first(keys: tuple[str, ...], found: list[dict]) -> str:
  """Returns the first of `keys` that is a cost of a summary."""
  named = {cost['key'] for cost in found}
  return next((key for key in keys if key in named), keys[-1])


def of_profile(folder: pathlib.Path) -> dict[str, float]:
  """Returns the costs in a profile's folder, launch.profile's --workdir."""
  found = json.loads((folder / 'profile.json').read_text())
  memory, time = found['memory'], found['time']
  programs = memory['programs']
  return {
    'step_seconds': time['median'],
    'compile_seconds': time['compile_seconds'],
    'forward_bytes': programs['forward']['total'],
    'kept_bytes': memory['kept_for_backward'],
    'backward_bytes': programs['forward + backward']['total'],
    'step_bytes': programs['training step']['total'],
  }
