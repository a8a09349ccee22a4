"""The configuration: declared once, as frozen dataclasses, and parsed once.

A config file calls `default()`, changes some keys, and returns the result; a
launcher passes it to `parse()`, which checks types and the rules between
fields. After `parse()` a value is an attribute, never a lookup.

    sections.py     the keys, with limits and conditions
    part_sections.py  those that all parts of a kind share
    parts.py        a name in a config is a file, which adds its own keys
    config_file.py  the ConfigDict that a config file changes
    values.py       their types and limits
    conditions.py   what a key needs and excludes
    rules.py        what keys must agree on besides
    resolve.py      what a config leaves open
"""

import copy
import dataclasses
import functools
import json
import math
import operator
import typing
from collections.abc import Iterator
from collections.abc import Mapping

import ml_collections

from rnn_jax import errors
from rnn_jax.config import conditions
from rnn_jax.config import config_file
from rnn_jax.config import parts
from rnn_jax.config import pattern as pattern_lib
from rnn_jax.config import resolve
from rnn_jax.config import rules
from rnn_jax.config import values
from rnn_jax.config.config_file import override as override
from rnn_jax.config.experts import Experts as Experts
from rnn_jax.config.mesh import Mesh as Mesh
from rnn_jax.config.part_sections import Data as Data
from rnn_jax.config.part_sections import Optimizer as Optimizer
from rnn_jax.config.part_sections import Schedule as Schedule
from rnn_jax.config.part_sections import Task as Task
from rnn_jax.config.parts import load as load
from rnn_jax.config.parts import names as names
from rnn_jax.config.parts import section as section
from rnn_jax.config.sections import MAX_SEED as MAX_SEED
from rnn_jax.config.sections import Config as Config
from rnn_jax.config.sections import Evaluate as Evaluate
from rnn_jax.config.sections import Image as Image
from rnn_jax.config.sections import Metrics as Metrics
from rnn_jax.config.sections import Model as Model
from rnn_jax.config.sections import Recurrence as Recurrence
from rnn_jax.config.sections import Remat as Remat
from rnn_jax.config.sections import Train as Train
from rnn_jax.config.sections import Vision as Vision
from rnn_jax.config.values import option as option


def default(
  cell: str | tuple[str, ...] = 'simple_rnn',
  *,
  task: str = 'language_modeling',
  source: str = 'python_stdlib',
  layout: str = 'buckets',
  optimizer: str = 'adamw',
  schedule: str = 'cosine',
) -> config_file.Root:
  """Returns all keys for these parts with defaults, as a locked ConfigDict.

  Several cells are a pattern, as in model.cells.

  Raises:
    InputError: a part doesn't exist; the message lists those that do.
  """
  root = config_file.to_config_dict(_build({}))
  override(
    root,
    {
      parts.BY_KEY['model.cell'].key_of(cell): cell,
      'task.name': task,
      'data.source': source,
      'data.layout': layout,
      'optimizer.name': optimizer,
      'schedule.name': schedule,
    },
  )
  return root


def parse(raw: Mapping[str, typing.Any] | ml_collections.ConfigDict) -> Config:
  """Checks a ConfigDict or a dict and returns the frozen Config.

  Raises:
    InputError: an unknown key, a wrong type, or values that contradict each
      other; the message names the key, the value and the remedy.
  """
  raw = raw.to_dict() if isinstance(raw, ml_collections.ConfigDict) else raw
  config = _build(raw)
  if filled := raw.get('given'):
    given = values.flat(_build(as_given(raw)))
    config = dataclasses.replace(config, given={k: given[k] for k in filled})
  values.check(config)
  config = resolve.of_config(config)
  check(config)
  return config


def check(config: Config) -> None:
  """Checks a Config: limits of values, and the rules between them.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  values.check(config)
  pattern_lib.check(config.model)
  for field in dataclasses.fields(config):
    section = getattr(config, field.name)
    own = isinstance(section, pattern_lib.Options)  # checks its cells' options
    if dataclasses.is_dataclass(section) and not own:
      conditions.check(config, field.name)
  rules.check(config)
  for kind, name in parts.chosen_by(config):
    part: typing.Any = parts.options(kind, name)
    if isinstance(name, str):
      conditions.check_part(config, part, f'{kind.key}={name!r}')
    part.check(getattr(config, kind.section), config)
  for section in (
    config.pruning,
    config.adapters,
    config.model.experts,
    config.model.shared_block,
    config.mesh,
  ):
    section.check(config)


def as_given(raw: Mapping[str, typing.Any]) -> dict:
  """Returns a config's dict with the values that filled keys had before.

  Raises:
    InputError: `given` has what isn't a key of it, or a part's name.
  """
  given = raw.get('given') or {}
  before = copy.deepcopy({key: raw[key] for key in raw if key != 'given'})
  try:
    for key, value in given.items():
      *path, name = key.split('.')
      section: typing.Any = functools.reduce(operator.getitem, path, before)
      if key in parts.BY_KEY or isinstance(section[name], dict):
        raise KeyError(key)
      section[name] = value
  except (AttributeError, KeyError, TypeError) as error:
    raise errors.InputError(
      f'given={given!r:.200}: it must have keys of the config with the values '
      'that they had'
    ) from error
  return before


def _build(raw):
  """Returns the Config of raw values; checks only their types."""
  named = parts.chosen(raw)
  others = (*parts.SECTIONS, 'given')
  rest = {key: raw[key] for key in raw if key not in others}
  config = values.build(Config, rest, '')
  sections = {}
  for name in parts.SECTIONS:
    cls = parts.section_class(name, named)
    given = raw.get(name, {})
    parts.check_keys(name, given, named)
    sections[name] = values.build(cls, given, f'{name}.')
  return dataclasses.replace(config, **sections)


def usage(raw: Mapping[str, typing.Any]) -> Iterator[tuple[str, str]]:
  """Yields each key as 'key=value', and what limits its values.

  Raises:
    InputError: an unknown key, or a wrong type.
  """
  for key, value, limits in values.options(_build(raw)):
    if '.' in key and not dataclasses.is_dataclass(value):
      yield f'{key}={value!r}', values.describe(limits)


def to_dict(config: Config) -> dict:
  """Returns the config as plain, JSON-ready dicts."""
  return dataclasses.asdict(config)


def to_json(config: Config) -> str:
  """Returns the config as indented JSON."""
  return json.dumps(to_dict(config), indent=2)


def completed(raw: Mapping[str, typing.Any]) -> dict:
  """Returns a config's dict with defaults for the keys that it lacks."""
  return _completed(raw, to_dict(_build(_named(raw))))


def _named(raw):
  """Returns a raw config with only the names of its parts."""
  sections = {}
  for key, name in parts.chosen(raw):
    section, _, field = parts.BY_KEY[key].key_of(name).partition('.')
    sections.setdefault(section, {})[field] = name
  return sections


def _completed(raw, defaults):
  complete = dict(raw)
  for key, value in defaults.items():
    if isinstance(value, dict):
      complete[key] = _completed(raw.get(key, {}), value)
    else:
      complete.setdefault(key, value)
  return complete


def remat_length(every: int | str, length: int) -> int:
  """Returns the steps between stored states in rows of `length` tokens.

  It is 0 without remat, and for 'auto' until training.memory.remat has chosen.
  """
  if every == 'sqrt':
    return math.isqrt(length - 1) + 1
  return 0 if every == 'auto' else int(every)
