"""A grid: variants of one config, a few seeds each, and what to compare.

A grid file has a function `get_grid()` that returns a Grid:

    grid.Grid(
      title='Two widths',
      config='configs/stdlib_bytes.py',
      variants={'narrow': {'model.width': 64}, 'wide': {'model.width': 256}},
      metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
      baseline='narrow',
    )
"""

import dataclasses
import importlib.util
import math
import pathlib
import re
import typing

from rnn_jax import errors

COMMANDS = ('train', 'evaluate', 'profile', 'find_batch_size')
DIRECTIONS = ('higher', 'lower')
SPLITS = ('train', 'validation', 'test')


class Metric(typing.NamedTuple):
  """A score of launch.evaluate --json, and which way is better."""

  key: str
  better: str  # 'higher' or 'lower'
  label: str


@dataclasses.dataclass(frozen=True)
class Grid:
  """What a grid file returns."""

  title: str
  config: str  # path of a config file
  variants: dict[str, dict[str, typing.Any]]  # name -> {'model.width': 64}
  metrics: tuple[tuple[str, str, str], ...]  # Metric's fields, the main first
  baseline: str = ''  # the variant that ratios refer to; empty: no ratios
  seeds: tuple[int, ...] = (0, 1, 2)
  commands: tuple[str, ...] = ('train', 'evaluate')  # of COMMANDS, in order
  memory_gib: float = 0.0  # of a device, for 'find_batch_size'
  split: str = 'validation'  # what evaluate reads
  notes: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
  # `notes`: published figures to draw beside ours, label -> {metric: value}

  @property
  def compared(self) -> tuple[Metric, ...]:
    """The metrics, the main one first."""
    return tuple(Metric(*metric) for metric in self.metrics)


def load(path: str) -> Grid:
  """Returns the checked grid of a file.

  Raises:
    InputError: no such file, an error in it, or a grid that contradicts
      itself; the message names the field, its value and the remedy.
  """
  grid = call(path, 'get_grid', '--grid')
  if not isinstance(grid, Grid):
    raise errors.InputError(
      f'--grid={path}: get_grid() returns {type(grid).__name__}: return a '
      'rnn_jax.experiments.grid.Grid'
    )
  check(grid)
  return grid


def call(path: str, function: str, argument: str) -> typing.Any:
  """Returns what a function of a Python file returns.

  Raises:
    InputError: no such file or function, or an error in it.
  """
  told = f'{argument}={path}'
  if not pathlib.Path(path).is_file():
    raise errors.InputError(f'{told}: no such file: give a path to one')
  spec = importlib.util.spec_from_file_location('_given', path)
  if spec is None:
    raise errors.InputError(f'{told}: give a Python file, NAME.py')
  module = importlib.util.module_from_spec(spec)
  try:
    spec.loader.exec_module(module)
    return getattr(module, function)()
  except Exception as error:
    raise errors.InputError(
      f'{told}: {function}() fails, {type(error).__name__}: {error}: mend '
      'the file'
    ) from error


def check(grid: Grid) -> None:
  """Checks all of a grid but its overrides, which plan.make checks.

  Raises:
    InputError: names the field, its value and the remedy.
  """
  _check_variants(grid)
  check_seeds(grid.seeds, 'seeds')
  _check_commands(grid)
  if grid.split not in SPLITS:
    errors.refuse('split', grid.split, f'choose one of {SPLITS}')
  if 'evaluate' not in grid.commands and grid.split != 'validation':
    errors.refuse('split', grid.split, "without 'evaluate', give 'validation'")
  _check_metrics(grid)
  _check_notes(grid)


def _check_commands(grid):
  asked = tuple(grid.commands)
  order = tuple(name for name in COMMANDS if name in asked)
  if asked != order or asked[:1] != ('train',):
    errors.refuse(
      'commands', asked, f"begin with 'train', then of {COMMANDS} in this order"
    )
  if ('find_batch_size' in asked) != (grid.memory_gib > 0):
    errors.refuse(
      'memory_gib',
      grid.memory_gib,
      "give it with 'find_batch_size' of commands, and 0 without",
    )


def check_seeds(seeds, argument):
  """Refuses seeds that are no whole numbers from 0 up, each once."""
  whole = all(type(seed) is int and seed >= 0 for seed in seeds)
  if not seeds or not whole or len(set(seeds)) < len(seeds):
    errors.refuse(argument, seeds, 'give different whole numbers from 0 up')


def _check_variants(grid):
  if not grid.variants or not isinstance(grid.variants, dict):
    errors.refuse('variants', grid.variants, 'name one variant or more')
  for name, overrides in grid.variants.items():
    if not re.fullmatch(r'[\w-]+', name, re.ASCII):
      errors.refuse('variants', name, 'name it by letters, digits, _ and -')
    if not isinstance(overrides, dict):
      errors.refuse(
        f'variants[{name!r}]', overrides, "give {'section.key': value}"
      )
  if grid.baseline and grid.baseline not in grid.variants:
    errors.refuse(
      'baseline', grid.baseline, f'choose one of {[*grid.variants]}'
    )


def _check_metrics(grid):
  if not grid.metrics:
    errors.refuse('metrics', grid.metrics, "give (('loss', 'lower', 'loss'),)")
  for metric in grid.metrics:
    if len(metric) != 3 or not all(isinstance(part, str) for part in metric):
      errors.refuse(
        'metrics', metric, 'give (key, direction, label), three strings'
      )
    if metric[1] not in DIRECTIONS:
      errors.refuse('metrics', metric, f'the second is one of {DIRECTIONS}')
  keys = [metric[0] for metric in grid.metrics]
  if len(set(keys)) < len(keys):
    errors.refuse('metrics', keys, 'give each once')


def _check_notes(grid):
  keys = [metric[0] for metric in grid.metrics]
  for label, values in grid.notes.items():
    for key, value in values.items():
      if key not in keys:
        errors.refuse(
          f'notes[{label!r}]', key, f'choose one of metrics: {keys}'
        )
      if not isinstance(value, (int, float)) or not math.isfinite(value):
        errors.refuse(f'notes[{label!r}]', value, 'give a finite number')
