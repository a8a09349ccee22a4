"""Parts: files that a config key chooses by name.

`optimizer.name = 'lion'` is the file rnn_jax/training/optimizers/lion.py;
'mypackage.myoptimizer', with a dot, is a module of the user. Its `Config`, a
frozen dataclass that extends the common one (config.Optimizer), is the section
of the config: a key of another part is unknown. `Config.check(config)` refuses
bad values; what other code must know about the part is an attribute of it.

A key may name several parts, as model.cells does: their section is then that of
`pattern.py`.
"""

import dataclasses
import functools
import importlib
import operator
import pkgutil
import sys
import types
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import ml_collections

from rnn_jax import errors
from rnn_jax.config import pattern
from rnn_jax.config import values


class Kind(NamedTuple):
  """One kind of part.

  Attributes:
    key: of the config; names a file.
    folder: of rnn_jax, with these files.
    section: of the config; has the file's options.
    default: name of a file.
    needs: what a file defines besides `Config`.
    several: the key that names several files in place of one; '': none.
  """

  key: str
  folder: str
  section: str
  default: str
  needs: tuple[str, ...]
  several: str = ''

  @property
  def place(self) -> list[str]:
    """The section and the name of the key."""
    return self.key.split('.')

  def key_of(self, name: 'Name') -> str:
    """Returns the key that gives this name."""
    return self.key if isinstance(name, str) else self.several


KINDS = (
  Kind(
    'task.name',
    'tasks',
    'task',
    'language_modeling',
    ('make', 'make_examples', 'check_documents'),
  ),
  Kind('data.source', 'data/sources', 'data', 'python_stdlib', ('load',)),
  Kind(
    'data.layout',
    'data/batching/layouts',
    'data',
    'buckets',
    ('plan', 'lengths'),
  ),
  Kind(
    'model.cell',
    'cells',
    'cell',
    'simple_rnn',
    ('Cell', 'LOGICAL_AXES'),
    'model.cells',
  ),
  Kind(
    'optimizer.name', 'training/optimizers', 'optimizer', 'adamw', ('make',)
  ),
  Kind('schedule.name', 'training/schedules', 'schedule', 'cosine', ('make',)),
)
BY_KEY = {
  key: kind for kind in KINDS for key in (kind.key, kind.several) if key
}
SECTIONS = tuple(dict.fromkeys(kind.section for kind in KINDS))

Name = str | tuple[str, ...]  # of a part, or of several
Names = tuple[tuple[str, Name], ...]  # (Kind.key, name)


def load(folder: str, name: str, key: str) -> types.ModuleType:
  """Imports the part that the config's `key` names.

  Args:
    folder: of rnn_jax, with the parts of this kind.
    name: of a file in it, or, with a dot, of a module of the user. The text
      after a colon is for the part: 'tfds:NAME'.
    key: of the config, for the message.

  Raises:
    InputError: there is no such file, and the message lists those that exist;
      or the module can't be imported, or lacks what a part defines.
  """
  file = name.partition(':')[0]
  own = '.' in file
  if not own:
    if file not in (known := names(folder)):
      raise errors.InputError(
        f'{key}={name!r}: choose one of {known}, or name your own module, as '
        "in 'mypackage.mymodule'"
      )
    file = f'{_package(folder).__name__}.{file}'
  try:
    module = importlib.import_module(file)
  except Exception as error:
    if not own:
      raise
    raise errors.InputError(
      f'{key}={name!r}: this module cannot be imported, '
      f'{type(error).__name__}: {error}'
    ) from error
  needs = ('Config', *BY_KEY[key].needs) if own and key in BY_KEY else ()
  if missing := [each for each in needs if not hasattr(module, each)]:
    raise errors.InputError(
      f'{key}={name!r}: {module.__file__} lacks {missing}: see a file of '
      f'rnn_jax/{folder}'
    )
  return module


def check_known(raw: Mapping[str, Any], where: str) -> None:
  """Checks that a config from a file of data names no code.

  A module of the user counts as known once it is imported.

  Args:
    raw: a config that someone else may have written.
    where: the file, for the message.

  Raises:
    InputError: it names a module that isn't imported; importing it would run
      its code.
  """
  for key, name in (*_single(chosen(raw)), *_writers(raw)):
    module = name.partition(':')[0]
    if '.' in module and module not in sys.modules:
      raise errors.InputError(
        f'{where}: {key}={name!r} names a module, and opening this would run '
        f'its code: if it is yours, give --modules={module}'
      )


def own_modules(raw: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the modules of the user that a config names."""
  given = (name for _, name in (*_single(chosen(raw)), *_writers(raw)))
  modules = (name.partition(':')[0] for name in given)
  return tuple(dict.fromkeys(name for name in modules if '.' in name))


def _single(named):
  """Yields (key, name) of every single part."""
  for kind_key, given in named:
    key = BY_KEY[kind_key].key_of(given)
    for name in (given,) if isinstance(given, str) else given:
      yield key, name


def _writers(raw):
  """Yields (key, name) of the writers of metrics, from raw values."""
  section = raw.get('metrics')
  given = section.get('writers') if isinstance(section, dict) else None
  for name in given if isinstance(given, (list, tuple)) else ():
    if isinstance(name, str):
      yield 'metrics.writers', name


def names(folder: str) -> list[str]:
  """Lists the parts in `rnn_jax/<folder>`: its files except base.py."""
  return sorted(_files(*_package(folder).__path__) - {'base'})


@functools.cache
def _files(*folders):
  """Returns the names of the modules in folders, read once."""
  return {m.name for m in pkgutil.iter_modules(folders) if not m.ispkg}


def _package(folder):
  return importlib.import_module(f'rnn_jax.{folder.replace("/", ".")}')


def options(kind: Kind, name: Name) -> type:
  """Returns the Config of a part, or of several.

  Raises:
    InputError: as `load`, or as `pattern.options`.
  """
  if isinstance(name, str):
    return load(kind.folder, name, kind.key).Config
  return _options_of_several(kind, name)


@functools.cache
def _options_of_several(kind, names):
  return pattern.options(
    {name: load(kind.folder, name, kind.several).Config for name in names}
  )


def chosen(raw: Mapping[str, Any]) -> Names:
  """Returns (key, name) for each kind, from raw values or by default."""
  chosen_names: list[tuple[str, Name]] = []
  for kind in KINDS:
    section, key = kind.place
    given, name = raw.get(section), kind.default
    several = None
    if isinstance(given, (dict, ml_collections.ConfigDict)):
      name = given.get(key, kind.default)
      several = given.get(kind.several.removeprefix(f'{section}.'))
    # Names of a wrong type are refused later, with all other wrong types.
    name = name if isinstance(name, str) else kind.default
    chosen_names.append((kind.key, pattern.names(several) or name))
  return tuple(chosen_names)


def chosen_by(config: Any) -> Iterator[tuple[Kind, Name]]:
  """Yields each kind with the name, or names, that a Config has."""
  for kind in KINDS:
    several = operator.attrgetter(kind.several)(config) if kind.several else ()
    yield kind, several or operator.attrgetter(kind.key)(config)


def section_class(section: str, named: Names) -> type:
  """Returns the dataclass of a section with these parts.

  Raises:
    InputError: as `load`, or two parts have the same key.
  """
  own = tuple(x for x in named if BY_KEY[x[0]].section == section)
  return _section_class(own)


@functools.cache
def _section_class(named):
  classes = [options(BY_KEY[key], name) for key, name in named]
  if len(classes) == 1:
    return classes[0]
  common = {*_fields(classes[0])}.intersection(*map(_fields, classes[1:]))
  shared = {name for cls in _common_base(classes) for name in _fields(cls)}
  if twice := sorted(common - shared):
    both = ' and '.join(f'{key}={name!r}' for key, name in named)
    raise errors.InputError(f'{both} both have the key {twice[0]!r}: rename it')
  # The last part is the first base: its methods take precedence.
  return dataclasses.make_dataclass(
    _common_base(classes)[0].__name__, (), bases=(*classes[::-1],), frozen=True
  )


def _common_base(classes):
  """Returns the dataclasses that all of these extend, the nearest first."""
  return [
    cls
    for cls in classes[0].__mro__
    if dataclasses.is_dataclass(cls)
    and all(issubclass(other, cls) for other in classes)
  ]


def _fields(cls):
  return [field.name for field in dataclasses.fields(cls)]


def section(section_name: str, /, **given: Any) -> Any:
  """Returns a section with these values: `section('data', source='text')`.

  Raises:
    InputError: as `load`, an unknown key, or a value of a wrong type.
  """
  named = chosen({section_name: given})
  cls = section_class(section_name, named)
  return values.build(cls, given, f'{section_name}.')


def check_keys(section: str, raw: Any, named: Names) -> None:
  """Checks that no key of a section belongs to another part.

  Raises:
    InputError: one does; the message names the parts that have it.
  """
  if not isinstance(raw, (dict, ml_collections.ConfigDict)):
    return
  known = _fields(section_class(section, named))
  for key in raw:
    if key in known:
      continue
    for kind in (kind for kind in KINDS if kind.section == section):
      if owners := _parts_with(kind, key):
        name = dict(named)[kind.key]
        remedy = f'leave it out, or choose one of {owners}'
        if not isinstance(name, str):
          own = pattern.section_name(name[0])
          remedy = f'give it to one of them, as in {section}.{own}.{key}'
        errors.refuse(
          f'{section}.{key}',
          raw[key],
          f'{kind.key_of(name)}={name!r} has no such key: {remedy}',
        )


def _parts_with(kind, key):
  """Returns the parts of a kind that have a key."""
  return [
    name for name in names(kind.folder) if key in _fields(options(kind, name))
  ]
