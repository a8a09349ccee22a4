"""The ConfigDict of a config file, whose keys depend on its parts.

Naming another part replaces the keys of its section. Keys that both parts have,
with the same default, keep their values.
"""

import ast
import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import ml_collections

from rnn_jax import errors
from rnn_jax.config import parts
from rnn_jax.config import values


class Section(ml_collections.ConfigDict):
  """A section of a config file; naming a part adds its keys."""

  def __setitem__(self, key, value):
    root, name = self.__dict__.get('_place', (None, None))
    kind = parts.BY_KEY.get(f'{name}.{key}')
    if root is None or kind is None:
      super().__setitem__(key, value)
      return
    before, named = self[key], parts.chosen(root)
    super().__setitem__(key, value)
    try:
      root.refill(kind.section, named)
    except errors.InputError:
      super().__setitem__(key, before)
      raise

  def update(self, *other: Any, **given: Any) -> None:
    """Updates as a dict does, the names of parts first."""
    given = dict(*other) | given
    name = self.__dict__.get('_place', (None, None))[1]
    first = [key for key in given if f'{name}.{key}' in parts.BY_KEY]
    for key in first:
      self[key] = given.pop(key)
    super().update(given)


class Root(ml_collections.ConfigDict):
  """The config of a config file."""

  def __setitem__(self, key, value):
    super().__setitem__(key, value)
    if isinstance(value := self[key], Section):
      value.__dict__['_place'] = self, key

  def update(self, *other: Any, **given: Any) -> None:
    """Updates as a dict does, the names of parts first."""
    given = dict(*other) | given
    for section, key in (name.split('.') for name in parts.BY_KEY):
      if key in given.get(section, ()):
        self[section][key] = given[section][key]
    super().update(given)

  def refill(self, name: str, before: parts.Names) -> None:
    """Replaces the keys of a section by those of its current parts.

    Args:
      name: of the section.
      before: the previous parts.

    Raises:
      InputError: as `parts.section_class`.
    """
    old, new = (
      parts.section_class(name, named) for named in (before, parts.chosen(self))
    )
    if new is old:
      return
    section = self[name]
    old_defaults, new_defaults = _defaults(old), _defaults(new)
    kept = {
      key: value
      for key, value in section.items()
      if key in new_defaults and old_defaults[key] == new_defaults[key]
    }
    with section.unlocked():
      for key in [*section]:
        del section[key]
      for key, value in (new_defaults | kept).items():
        values.put(section, new, key, value)


def _defaults(cls):
  filled = values.to_config_dict(cls())
  return {key: filled[key] for key in filled}


def to_config_dict(config: Any) -> Root:
  """Returns a Config as the locked ConfigDict of a config file."""
  root = Root()
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if dataclasses.is_dataclass(value):  # a section
      root[field.name] = values.to_config_dict(value, Section)
  return root.lock()


def override(raw: Root, given: Mapping[str, Any]) -> None:
  """Sets keys in the ConfigDict of a config file, {'section.key': value}.

  The names of parts are set first, whatever the order.

  Raises:
    InputError: as `load`, or a key of another part.
    AttributeError, KeyError: an unknown key.
  """
  for key in sorted(given, key=lambda key: key not in parts.BY_KEY):
    *path, name = key.split('.')
    holder = functools.reduce(lambda held, part: held[part], path, raw)
    if len(path) == 1 and name not in holder and path[0] in parts.SECTIONS:
      parts.check_keys(path[0], {name: given[key]}, parts.chosen(raw))
    holder[name] = given[key]


def name_parts(raw: Root, given: Mapping[str, Any]) -> None:
  """Sets the names of parts among the keys of a command line.

  Args:
    raw: of a config file, is changed.
    given: {'section.key': text, or the value that it stands for}.

  Raises:
    InputError: as `load`, a key of another part, or a text that isn't a tuple
      where the key takes one.
  """
  named = {key: given[key] for key in given if key in parts.BY_KEY}
  override(raw, {key: _name(key, value) for key, value in named.items()})
  for key, value in given.items():
    section, _, name = key.partition('.')
    if section in parts.SECTIONS and '.' not in name:
      parts.check_keys(section, {name: value}, parts.chosen(raw))


def _name(key, value):
  """Returns a part's name, or several, from their text in a command line."""
  if key != parts.BY_KEY[key].several or not isinstance(value, str):
    return value
  names = value
  with contextlib.suppress(SyntaxError, ValueError):
    names = ast.literal_eval(value)
  if not isinstance(names, tuple):
    raise errors.InputError(
      f"{key}={value}: give a tuple, as in \"('gla', 'attention')\""
    )
  return names
