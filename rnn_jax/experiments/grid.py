"""A grid: variants of one config, a few seeds each, and the metrics to compare.

A grid file has a function `get_grid()` that returns a Grid:

    grid.Grid(
      title='Two widths',
      config='configs/stdlib_bytes.py',
      variants={'narrow': {'model.width': 64}, 'wide': {'model.width': 256}},
      metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
      baseline='narrow',
    )

A variant may have another config than the grid's, {'config': 'long_range:s5'}.
With `axes` variants are compared in a table of lines and columns.
"""

import dataclasses
import math
import pathlib
import re
import runpy
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.experiments import axes as axes_lib

COMMANDS = ('train', 'evaluate', 'inspect', 'profile', 'find_batch_size')
DIRECTIONS = ('higher', 'lower')
SPLITS = ('train', 'validation', 'test')


class Metric(NamedTuple):
  """A score of launch.evaluate or launch.inspect, and which way is better."""

  # 'accuracy' of the grid's split, 'test.accuracy' of another, or 'flow.64' of
  # launch.inspect: the gradient that reaches 64 to 127 steps back.
  key: str
  better: str  # 'higher' or 'lower'
  label: str


@dataclasses.dataclass(frozen=True)
class Grid:
  """What a grid file returns."""

  title: str
  config: str  # path of a config file, 'configs/long_range.py:s5,gru'
  variants: dict[str, dict[str, Any]]  # name -> {'model.width': 64}
  metrics: tuple[tuple[str, str, str], ...]  # Metric's fields, the main first
  baseline: str = ''  # the variant that ratios refer to; empty: no ratios
  seeds: tuple[int, ...] = (0, 1, 2)
  commands: tuple[str, ...] = ('train', 'evaluate')  # some of COMMANDS
  memory_gib: float = 0.0  # of a device, for 'find_batch_size'
  split: str = 'validation'  # what evaluate reads first
  axes: axes_lib.Axes = axes_lib.Axes()  # of the variants' names
  # Published figures to draw with ours, label -> {metric: value}.
  notes: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)

  @property
  def compared(self) -> tuple[Metric, ...]:
    """The metrics, the main one first."""
    return tuple(Metric(*metric) for metric in self.metrics)

  @property
  def splits(self) -> tuple[str, ...]:
    """What evaluate reads: `split`, then those that metrics name."""
    named = (metric.key.partition('.')[0] for metric in self.compared)
    return tuple(
      dict.fromkeys((self.split, *(x for x in named if x in SPLITS)))
    )


def load(path: str) -> Grid:
  """Returns the checked grid of a file.

  Raises:
    InputError: a missing file, an error in it, or a grid that contradicts
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


def call(path: str, function: str, argument: str, *values: str) -> Any:
  """Returns what a function of a Python file returns for some values.

  Raises:
    InputError: a missing file or function, or an error in it.
  """
  given = f'{argument}={path}'
  if not pathlib.Path(path).is_file():
    raise errors.InputError(f'{given}: no such file: give its path')
  if not path.endswith('.py'):
    raise errors.InputError(f'{given}: give a Python file, NAME.py')
  try:
    # An import would take kept bytecode for a file that changed in the same
    # second and has the same size.
    names = runpy.run_path(path)
    if function in names:
      return names[function](*values)
  except Exception as error:
    raise errors.InputError(
      f'{given}: {function}() fails, {type(error).__name__}: {error}: correct '
      'the file'
    ) from error
  raise errors.InputError(f'{given}: it has no {function}(): write one')


def check(grid: Grid) -> None:
  """Checks a grid except its overrides, which plan.make checks.

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
  commands = tuple(grid.commands)
  ordered = tuple(name for name in COMMANDS if name in commands)
  if commands != ordered or commands[:1] != ('train',):
    errors.refuse(
      'commands',
      commands,
      f"begin with 'train', then some of {COMMANDS} in this order",
    )
  if ('find_batch_size' in commands) != (grid.memory_gib > 0):
    errors.refuse(
      'memory_gib',
      grid.memory_gib,
      "give it with 'find_batch_size' in commands, and 0 without",
    )


def check_seeds(seeds: Sequence[int], argument: str) -> None:
  """Raises InputError unless seeds are different whole numbers from 0 up."""
  whole = all(type(seed) is int and seed >= 0 for seed in seeds)
  if not seeds or not whole or len(set(seeds)) < len(seeds):
    errors.refuse(argument, seeds, 'give different whole numbers from 0 up')


def _check_variants(grid):
  if not grid.variants or not isinstance(grid.variants, dict):
    errors.refuse('variants', grid.variants, 'name one variant or more')
  parts = grid.axes.names
  for name, overrides in grid.variants.items():
    part = r'[\w-][\w.-]*'
    if not re.fullmatch('/'.join([part] * len(parts)), name, re.ASCII):
      errors.refuse(
        'variants',
        name,
        f'it names a folder for each of {"/".join(parts)}: use letters, '
        'digits, _, - and, not first, dots',
      )
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
