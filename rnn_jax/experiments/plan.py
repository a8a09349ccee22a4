"""Turns a grid into runs, each with its whole config.

Every error in a config is raised here, at once and without a device, before
the first run starts.
"""

import ast
import copy
import dataclasses
import difflib
import functools
import json
import pathlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from flax import traverse_util

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import config_file
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.system import shipped

SEED = 'train.seed'
CONFIG = 'config'  # the key of a variant that has a config of its own


@dataclasses.dataclass(frozen=True)
class Run:
  """A variant with a seed.

  Attributes:
    variant: its name in the grid.
    seed: of the run.
    overrides: {dotted key: value}, without the seed; CONFIG may be a key.
    config: the whole config as JSON has it.
    flags: of launch.train, except --workdir.
  """

  variant: str
  seed: int
  overrides: dict[str, Any]
  config: dict[str, Any]
  flags: tuple[str, ...]

  @property
  def name(self) -> str:
    """What --only and --skip match; also the run's folder in the workdir."""
    return name_of(self.variant, self.seed)


def name_of(variant: str, seed: int) -> str:
  """Returns a run's name; a variant that --vary made is a list of values."""
  if '=' in variant:
    return f'{variant},seed={seed}'
  return f'{variant}/seed{seed}'


def make(
  grid: grid_lib.Grid,
  settings: Sequence[str] = (),
  common: Mapping[str, Any] | None = None,
) -> Callable[[str, int], Run]:
  """Returns a function (variant, seed) -> Run.

  Args:
    grid: the grid.
    settings: 'section.key=value' of the command line, for every run.
    common: {'section.key': value}, for every run.

  Raises:
    InputError: a wrong config file, setting, or override of any variant.
  """
  load_once = functools.cache(load)
  pairs = [pair(text) for text in settings]
  given = dict(common or {})

  @functools.cache
  def plan(variant, seed):
    overrides = dict(grid.variants[variant])
    config = overrides.pop(CONFIG, grid.config)
    path, raw = load_once(config)
    if twice := sorted(given.keys() & overrides.keys()):
      raise errors.InputError(
        f'--config.{twice[0]}={given[twice[0]]!r}: variant {variant!r} sets '
        'it too: leave one out'
      )
    every = parse_settings(raw, overrides | given, pairs) if pairs else {}
    if twice := sorted(every.keys() & overrides.keys()):
      raise errors.InputError(
        f'--set={twice[0]}={every[twice[0]]!r}: variant {variant!r} sets it '
        'too: change it in the grid'
      )
    run = _run(path, raw, variant, seed, overrides | given | every)
    own = {} if config == grid.config else {CONFIG: config}
    return dataclasses.replace(run, overrides=own | run.overrides)

  load_once(grid.config)
  for variant in grid.variants:
    plan(variant, 0)
  return plan


def parse_settings(
  raw: config_file.Root,
  others: Mapping[str, Any],
  pairs: Sequence[tuple[str, str]],
) -> dict[str, Any]:
  """Returns {key: value of the key's type} of (key, text).

  Args:
    raw: a config.
    others: {'section.key': value} that apply too; they may name parts.
    pairs: the keys and texts.

  Raises:
    InputError: an unknown key.
  """
  known = _keys(raw, {**others, **dict(pairs)})
  return {key: _setting(key, text, known) for key, text in pairs}


def changed(raw: config_file.Root, values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the dict of a config with other values.

  Raises:
    InputError: an unknown key.
  """
  known = _keys(raw, values)
  for key in values:
    _check_known(key, known)
  return traverse_util.unflatten_dict({**known, **values}, sep='.')


def select(
  runs: list[Run], only: str | None = None, skip: str | None = None
) -> list[Run]:
  """Returns the runs whose name matches `only` and doesn't match `skip`.

  Raises:
    InputError: a bad regular expression, or no run is left.
  """
  wanted, unwanted = _pattern('--only', only), _pattern('--skip', skip)
  chosen = [
    run
    for run in runs
    if wanted.search(run.name) and not (skip and unwanted.search(run.name))
  ]
  if not chosen:
    given = {'--only': only, '--skip': skip}
    flags = ' '.join(f'{name}={x}' for name, x in given.items() if x)
    raise errors.InputError(
      f'{flags}: leaves none of the runs {[run.name for run in runs]}'
    )
  return chosen


def _run(path, raw, variant, seed, overrides):
  if SEED in overrides:
    raise errors.InputError(
      f'{SEED}={overrides[SEED]!r} of variant {variant!r}: give seeds in the '
      'grid or by --seeds'
    )
  values = overrides | {SEED: seed}
  try:
    parsed = config_lib.to_dict(config_lib.parse(changed(raw, values)))
  except errors.InputError as error:
    raise errors.InputError(f'variant {variant!r}: {error}') from error
  flags = [f'--config={path}']
  flags += [f'--config.{key}={value}' for key, value in values.items()]
  return Run(
    variant, seed, overrides, json.loads(json.dumps(parsed)), tuple(flags)
  )


def _keys(raw, values):
  """The keys of a config with the parts that `values` name, as it has them."""
  named = copy.deepcopy(raw)
  config_file.name_parts(named, values)
  # A section without keys stays.
  return traverse_util.flatten_dict(named.to_dict(), True, sep='.')


def _check_known(key, known):
  """Raises InputError unless a key is one of the known ones."""
  if key in known:
    return
  if any(other.startswith(f'{key}.') for other in known):
    raise errors.InputError(f'{key} is a section: give keys of it, {key}.KEY')
  near = difflib.get_close_matches(key, known, 1)
  remedy = f'did you mean {near[0]!r}?' if near else 'see rnn_jax/config'
  raise errors.InputError(f'unknown config key {key}: {remedy}')


def pair(text: str) -> tuple[str, str]:
  """Returns (key, value) of 'section.key=value'.

  Raises:
    InputError: it has no '='.
  """
  key, equals, value = text.partition('=')
  if not equals:
    raise errors.InputError(f'--set={text}: give section.key=value')
  return key, value


def _setting(key, text, known):
  """The value of a text, of the key's type."""
  _check_known(key, known)
  if isinstance(known[key], str):
    return text
  if isinstance(known[key], bool):
    return {'true': True, 'false': False}.get(text.lower(), text)
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text  # 'sqrt', or what config.parse refuses by its type


def load(config: str) -> tuple[str, config_file.Root]:
  """Returns (a config as --config takes it, what its file returns).

  Args:
    config: as for `find`, and after a colon what its get_config is given.

  Raises:
    InputError: there is no such file, or an error in it.
  """
  name, colon, given = config.partition(':')
  path = find(name)
  values = [given] if colon else []
  return path + colon + given, grid_lib.call(
    path, 'get_config', 'config', *values
  )


def find(config: str) -> str:
  """Returns the path of a config: a file, or the name of one in configs/.

  Raises:
    InputError: there is no such file.
  """
  if not config.endswith('.py'):
    config = shipped.find('config', config)
  for path in (pathlib.Path(config), shipped.ROOT / config):
    if path.is_file():
      return str(path)
  raise errors.InputError(
    f'config={config!r}: no such file here or in {shipped.ROOT}: give its path'
  )


def _pattern(flag, text):
  try:
    return re.compile(text or '')
  except re.error as error:
    raise errors.InputError(
      f'{flag}={text}: not a regular expression ({error}): correct it'
    ) from error
