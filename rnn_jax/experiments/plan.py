"""From a grid to its runs, each with the whole config that it will have.

Everything that can be wrong with a config is found here, in a moment and
without a device, before the first run has started.
"""

import ast
import copy
import dataclasses
import difflib
import json
import pathlib
import re
import typing

from rnn_jax import checkout
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.experiments import grid as grid_lib

SEED = 'train.seed'


@dataclasses.dataclass(frozen=True)
class Run:
  """A variant with a seed.

  Attributes:
    variant: its name in the grid.
    seed: of the run.
    overrides: {dotted key: value}, the seed not among them.
    config: the whole config as JSON has it.
    flags: of launch.train, but for --workdir.
  """

  variant: str
  seed: int
  overrides: dict[str, typing.Any]
  config: dict[str, typing.Any]
  flags: tuple[str, ...]

  @property
  def name(self) -> str:
    """What --only and --skip match, and the folder in the work folder."""
    return f'{self.variant}/seed{self.seed}'


def make(
  grid: grid_lib.Grid, settings: tuple[str, ...] = ()
) -> typing.Callable[[str, int], Run]:
  """Returns a function (variant, seed) -> Run.

  Args:
    grid: the grid.
    settings: 'section.key=value' of the command line, for every run.

  Raises:
    InputError: a wrong config file, setting, or override of any variant.
  """
  path = _find(grid.config)
  raw = grid_lib.call(path, 'get_config', 'config').to_dict()
  common = dict(_setting(raw, text) for text in settings)

  def planned(variant, seed):
    overrides = grid.variants[variant]
    if twice := sorted(common.keys() & overrides.keys()):
      raise errors.InputError(
        f'--set={twice[0]}={common[twice[0]]!r}: variant {variant!r} sets it '
        'too: change it in the grid'
      )
    return _run(path, raw, variant, seed, overrides | common)

  for variant in grid.variants:
    planned(variant, 0)
  return planned


def select(
  runs: list[Run], only: str | None = None, skip: str | None = None
) -> list[Run]:
  """Returns the runs whose name `only` finds and `skip` doesn't.

  Raises:
    InputError: not a regular expression, or nothing is left.
  """
  wanted, unwanted = _pattern('--only', only), _pattern('--skip', skip)
  chosen = [
    run
    for run in runs
    if (wanted is None or wanted.search(run.name))
    and not (unwanted and unwanted.search(run.name))
  ]
  if not chosen:
    given = {'--only': only, '--skip': skip}
    told = ' '.join(f'{flag}={value}' for flag, value in given.items() if value)
    raise errors.InputError(
      f'{told}: leaves none of the runs {[run.name for run in runs]}'
    )
  return chosen


def _run(path, raw, variant, seed, overrides):
  if SEED in overrides:
    raise errors.InputError(
      f'{SEED}={overrides[SEED]!r} of variant {variant!r}: give seeds in the '
      'grid or by --seeds'
    )
  changed, values = copy.deepcopy(raw), overrides | {SEED: seed}
  try:
    for key, value in values.items():
      section, name = _locate(changed, key)
      section[name] = value
    parsed = config_lib.to_dict(config_lib.parse(changed))
  except errors.InputError as error:
    raise errors.InputError(f'variant {variant!r}: {error}') from error
  flags = [f'--config={path}']
  flags += [f'--config.{key}={value}' for key, value in values.items()]
  return Run(
    variant, seed, overrides, json.loads(json.dumps(parsed)), tuple(flags)
  )


def _setting(raw, text):
  """'section.key=value' as (key, value of the key's type)."""
  key, equals, value = text.partition('=')
  if not equals:
    raise errors.InputError(f'--set={text}: give section.key=value')
  section, name = _locate(raw, key)
  if isinstance(section[name], str):
    return key, value
  if isinstance(section[name], bool):
    return key, {'true': True, 'false': False}.get(value.lower(), value)
  try:
    return key, ast.literal_eval(value)
  except (ValueError, SyntaxError):
    return key, value  # 'sqrt', or what config.parse refuses by its type


def _locate(raw, key):
  """(section, name) of a dotted key in nested dicts, or InputError."""
  *sections, name = key.split('.')
  section = raw
  for part in [*sections, name]:
    if not isinstance(section, dict) or part not in section:
      near = difflib.get_close_matches(key, _keys(raw), 1)
      remedy = f'did you mean {near[0]!r}?' if near else 'see rnn_jax/config'
      raise errors.InputError(f'unknown config key {key}: {remedy}')
    section, parent = section[part], section
  if isinstance(section, dict):
    raise errors.InputError(f'{key} is a section: give keys of it, {key}.KEY')
  return parent, name


def _keys(raw, prefix=''):
  for key, value in raw.items():
    if isinstance(value, dict):
      yield from _keys(value, f'{prefix}{key}.')
    else:
      yield prefix + key


def _find(config):
  """The config file as named, or of that name in the checkout."""
  for path in (pathlib.Path(config), checkout.ROOT / config):
    if path.is_file():
      return str(path)
  raise errors.InputError(
    f'config={config!r}: no such file here or in {checkout.ROOT}: give its path'
  )


def _pattern(flag, text):
  try:
    return re.compile(text) if text else None
  except re.error as error:
    raise errors.InputError(
      f'{flag}={text}: no regular expression ({error}): mend it'
    ) from error
