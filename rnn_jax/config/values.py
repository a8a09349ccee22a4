"""Values of a config between dataclasses and what files and flags give."""

import dataclasses
import difflib
import functools
import math
import types
import typing

import ml_collections

from rnn_jax import errors


def to_config_dict(section):
  """Returns a section's values as a locked ml_collections.ConfigDict."""
  out = ml_collections.ConfigDict()
  hints = typing.get_type_hints(type(section))
  for field in dataclasses.fields(section):
    value = getattr(section, field.name)
    if dataclasses.is_dataclass(value):
      out[field.name] = to_config_dict(value)
    elif isinstance(hints[field.name], types.UnionType):
      out[field.name] = ml_collections.config_dict.placeholder(object)
      out[field.name] = value
    else:
      out[field.name] = value
  return out.lock()


def build(cls, raw, prefix):
  """Returns the dataclass `cls` of raw values; `prefix` is of their keys.

  Raises:
    InputError: an unknown key, or a value of a wrong type.
  """
  hints = typing.get_type_hints(cls)
  if not isinstance(raw, (dict, ml_collections.ConfigDict)):
    raise errors.InputError(f'{prefix[:-1]}={raw!r}: give keys: {[*hints]}')
  for key in raw:
    if key not in hints:
      close = difflib.get_close_matches(key, hints, 1)
      remedy = f'did you mean {close[0]!r}?' if close else f'keys: {[*hints]}'
      raise errors.InputError(f'unknown config key {prefix}{key}: {remedy}')
  values = {}
  for key, value in raw.items():
    hint = hints[key]
    if dataclasses.is_dataclass(hint):
      values[key] = build(hint, value, f'{prefix}{key}.')
    else:
      values[key] = _convert(hint, value, prefix + key)
  return cls(**values)


def _convert(hint, value, key):
  """Returns `value` as the type that `hint` declares, or raises."""
  if hint is typing.Any:
    return value
  if isinstance(hint, types.UnionType):
    kinds = typing.get_args(hint)
    if isinstance(value, str) and int in kinds and value.isdecimal():
      return int(value)
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
  if isinstance(value, float) and not math.isfinite(value):
    raise errors.InputError(f'{key}={value!r}: give a finite number')
  return value


def _tuple(inner, value, key):
  """Each item as its type: one for all (`tuple[X, ...]`), or one for each."""
  if inner[-1] is ...:
    inner = inner[:1] * len(value)
  if len(inner) != len(value):
    raise errors.InputError(f'{key}: {value!r}: give {len(inner)} values')
  return tuple(map(functools.partial(_convert, key=key), inner, value))


def differences(old, new):
  """Lists `key: old -> new` for each leaf in which two dicts differ."""
  lines = []
  for key in sorted(old.keys() | new.keys()):
    a, b = old.get(key, '(absent)'), new.get(key, '(absent)')
    if isinstance(a, dict) and isinstance(b, dict):
      lines += [f'{key}.{line}' for line in differences(a, b)]
    elif _plain(a) != _plain(b):
      lines.append(f'{key}: {a!r} -> {b!r}')
  return lines


def _plain(value):
  """A value as JSON has it: tuples are lists."""
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  return value
