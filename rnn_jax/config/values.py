"""Converts and checks values of a config from files and flags."""

import dataclasses
import difflib
import functools
import importlib
import types
import typing
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import ml_collections
import numpy as np

from rnn_jax import errors

T = typing.TypeVar('T')
LIMITS = {
  'minimum': 'from',
  'maximum': 'to',
  'below': 'below',
  'above': 'above',
}
LARGEST = float(np.finfo(np.float32).max)  # programs compute in float32
LARGEST_INTEGER = 2**48  # sums and products of a few still fit in 64 bits


def option(
  default: T,
  *,
  minimum: float | None = None,
  maximum: float | None = None,
  below: float | None = None,
  above: float | None = None,
  choices: Sequence[T] | str = (),
  needs: str | tuple[str, ...] = (),
  excludes: str | tuple[str, ...] = (),
) -> T:
  """Returns a dataclass field with limits of its values.

  Args:
    default: the default value.
    minimum: the smallest number.
    maximum: the largest number.
    below: numbers must be in [0, below), as float32.
    above: numbers must be larger, as float32.
    choices: the allowed values, or where they are defined: a module of rnn_jax
      and a name in it, as in 'ops.pooling:KINDS'.
    needs: conditions without which it has no effect: config/conditions.py.
    excludes: conditions with which it isn't available.
  """
  limits = {
    'minimum': minimum,
    'maximum': maximum,
    'below': below,
    'above': above,
    'choices': choices,
    'needs': (needs,) if isinstance(needs, str) else needs,
    'excludes': (excludes,) if isinstance(excludes, str) else excludes,
  }
  return dataclasses.field(default=default, metadata=limits)


def options(
  section: typing.Any, prefix: str = ''
) -> Iterator[tuple[str, typing.Any, Mapping[str, typing.Any]]]:
  """Yields (key, value, metadata) of each field, of inner sections too."""
  for field in dataclasses.fields(section):
    value = getattr(section, field.name)
    yield prefix + field.name, value, field.metadata
    if dataclasses.is_dataclass(value):
      yield from options(value, f'{prefix}{field.name}.')


def flat(config: typing.Any) -> dict[str, typing.Any]:
  """Returns {'section.key': value} of a Config's sections."""
  return {
    key: value
    for key, value, _ in options(config)
    if '.' in key and not dataclasses.is_dataclass(value)
  }


def replaced(
  section: typing.Any, given: Mapping[str, typing.Any]
) -> typing.Any:
  """Returns a Config or a section with other values of {'section.key'}."""
  own: dict[str, typing.Any] = {}
  for key, value in given.items():
    name, _, inner = key.partition('.')
    held = own.get(name, getattr(section, name))
    own[name] = replaced(held, {inner: value}) if inner else value
  return dataclasses.replace(section, **own)


def largest_sizes(config: typing.Any) -> str:
  """Returns the three largest sizes of a model as 'model.width=128, ...'."""
  sizes = {
    f'{name}.{key}': value
    for name in ('model', 'cell')
    for key, value, _ in options(getattr(config, name))
    if type(value) is int
  }
  largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
  return ', '.join(f'{key}={sizes[key]:,}' for key in largest)


def check(section: typing.Any, prefix: str = '') -> None:
  """Checks each value against the limits of its `option`.

  Args:
    section: a Config, or one of its sections.
    prefix: of the keys, for messages.

  Raises:
    InputError: names the key, the value and the limit.
  """
  for key, value, limits in options(section, prefix):
    if (given := limits.get('choices')) and value not in choices_of(given):
      errors.refuse(key, value, f'choose one of {choices_of(given)}')
    if (minimum := limits.get('minimum')) is not None and value < minimum:
      errors.refuse(key, value, f'give {minimum} or more')
    if (maximum := limits.get('maximum')) is not None and value > maximum:
      errors.refuse(key, value, f'give {maximum} or less')
    if (below := limits.get('below')) is not None:
      if not 0 <= np.float32(value) < below:
        errors.refuse(key, value, f'give a number in [0, {below}) as float32')
    if (above := limits.get('above')) is not None:
      if not np.float32(value) > above:
        errors.refuse(key, value, f'give a number above {above} as float32')
    if type(value) is int and abs(value) > LARGEST_INTEGER:
      errors.refuse(key, value, 'give a whole number of at most 2**48')


def describe(rules: Mapping[str, typing.Any]) -> str:
  """Returns what an option's metadata says of its values; '': nothing."""
  texts = []
  if given := rules.get('choices'):
    texts.append('one of ' + ', '.join(map(repr, choices_of(given))))
  for name, words in LIMITS.items():
    if rules.get(name) is not None:
      texts.append(f'{words} {rules[name]}')
  for name, words in (('needs', 'needs'), ('excludes', 'not with')):
    if others := rules.get(name):
      texts.append(f'{words} {", ".join(others)}')
  return '; '.join(texts)


def choices_of(given: Sequence[typing.Any] | str) -> tuple[typing.Any, ...]:
  """Returns the allowed values, for the `choices` of an option."""
  if not isinstance(given, str):
    return tuple(given)
  module, _, name = given.partition(':')
  return tuple(getattr(importlib.import_module(f'rnn_jax.{module}'), name))


def to_config_dict(
  section: typing.Any,
  kind: type[ml_collections.ConfigDict] = ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Returns a section's values as a locked ml_collections.ConfigDict."""
  out = kind()
  cls: type = type(section)
  for field in dataclasses.fields(section):
    value = getattr(section, field.name)
    if dataclasses.is_dataclass(value):
      value = to_config_dict(value)
    put(out, cls, field.name, value)
  return out.lock()


def put(
  out: ml_collections.ConfigDict, cls: type, key: str, value: typing.Any
) -> None:
  """Sets a key of the dataclass `cls`, which keeps the types that it takes."""
  set_item = ml_collections.ConfigDict.__setitem__
  if isinstance(_hints(cls)[key], types.UnionType):
    set_item(out, key, ml_collections.config_dict.placeholder(object))
  set_item(out, key, value)


def build(cls: type, raw: typing.Any, prefix: str) -> typing.Any:
  """Returns an instance of the dataclass `cls` from raw values.

  Args:
    cls: a dataclass.
    raw: a dict or ConfigDict of values.
    prefix: of the keys, for messages.

  Raises:
    InputError: an unknown key, or a value of a wrong type.
  """
  hints = _hints(cls)
  keys = [field.name for field in dataclasses.fields(cls)]
  if not isinstance(raw, (dict, ml_collections.ConfigDict)):
    raise errors.InputError(f'{prefix[:-1]}={raw!r}: give keys: {keys}')
  for key in raw:
    if key not in keys:
      close = difflib.get_close_matches(key, keys, 1)
      remedy = f'did you mean {close[0]!r}?' if close else f'keys: {keys}'
      raise errors.InputError(f'unknown config key {prefix}{key}: {remedy}')
  values = {}
  for key, value in raw.items():
    hint = hints[key]
    section = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    if section and not isinstance(value, hint):
      values[key] = build(hint, value, f'{prefix}{key}.')
    else:
      values[key] = _convert(hint, value, prefix + key)
  return cls(**values)


_hints = functools.cache(typing.get_type_hints)  # they are read slowly


def _convert(hint, value, key):
  """Returns `value` as the type `hint`, or raises InputError."""
  if hint is typing.Any or dataclasses.is_dataclass(hint):
    return value
  if isinstance(hint, types.UnionType):
    kinds = typing.get_args(hint)
    if isinstance(value, str) and int in kinds and value.isdecimal():
      return int(value)
    for kind in kinds:
      if typing.get_origin(kind) is tuple and isinstance(value, (list, tuple)):
        return _tuple(typing.get_args(kind), value, key)
  elif typing.get_origin(hint) is tuple:
    if isinstance(value, (list, tuple)):
      return _tuple(typing.get_args(hint), value, key)
    kinds = ()
  else:
    kinds = (hint,)
    if hint is float and type(value) is int:
      return float(value)
  if type(value) not in kinds:
    name = getattr(hint, '__name__', str(hint))
    raise errors.InputError(
      f'{key}={value!r} is of type {type(value).__name__}: give {name}'
    )
  if isinstance(value, float) and not abs(value) <= LARGEST:
    raise errors.InputError(
      f'{key}={value!r}: give a finite number of at most {LARGEST:.1e}, which '
      'float32 holds'
    )
  return value


def _tuple(inner, value, key):
  """Converts each item to its type, of `tuple[X, ...]` or `tuple[X, Y]`."""
  if inner[-1] is ...:
    inner = inner[:1] * len(value)
  if len(inner) != len(value):
    raise errors.InputError(f'{key}: {value!r}: give {len(inner)} values')
  return tuple(map(functools.partial(_convert, key=key), inner, value))


def differences(old: dict, new: dict) -> list[str]:
  """Returns `key: old -> new` for each leaf in which two dicts differ."""
  lines = []
  for key in sorted(old.keys() | new.keys()):
    a, b = old.get(key, '(absent)'), new.get(key, '(absent)')
    if isinstance(a, dict) and isinstance(b, dict):
      lines += [f'{key}.{line}' for line in differences(a, b)]
    elif _plain(a) != _plain(b):
      lines.append(f'{key}: {a!r} -> {b!r}')
  return lines


def _plain(value):
  """Returns a value with lists for tuples, as in JSON."""
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  return value
