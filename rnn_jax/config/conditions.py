"""What an option says of other keys: `needs`, and `excludes`.

    option(0, needs='mesh.pipe>1')                           it has no effect
                                                             without
    option('', excludes=('remat.segment', 'mesh.pipe>1'))    not available with

A part that doesn't work with a key says so in its class, `excludes`. A
condition is one of

    KEY              it is set: not 0, '', (), False or None
    KEY=VALUE        a Python value, several as a tuple, or where choices are
                     defined: 'model.mlp=models.mlp:WITH_BETA'
    KEY!=VALUE
    KEY>VALUE

KEY is of the config, or an attribute of a part, as in 'task.reads_images' or
'task.per_token=False'; what a part lacks isn't set. Of a key that was filled
in, what was given counts.
"""

import ast
import dataclasses
import functools
import operator
import re
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.config import values

FORM = re.compile(r'([\w.]+)(!?=|>)?(.*)')
# The key that names the part with an attribute.
NAMES = {
  'task': 'task.name',
  'data': 'data.layout',
  'cell': 'model.cell',
  'optimizer': 'optimizer.name',
  'schedule': 'schedule.name',
}


class Condition(NamedTuple):
  """A condition, parsed: `key relation value`."""

  key: str
  relation: str
  value: Any

  def holds(self, config: Any) -> bool:
    """Whether a Config meets it."""
    value = _value(config, self.key)
    if not self.relation:
      return bool(value)
    if self.relation == '>':
      return value is not None and value > self.value
    among = self.value if isinstance(self.value, tuple) else (self.value,)
    return (value in among) == (self.relation == '=')

  def needed(self, config: Any) -> str:
    """Returns what a Config lacks."""
    if part := _part_with(config, self.key):
      return f'a {part} that {self.key.partition(".")[2].replace("_", " ")}'
    if isinstance(self.value, tuple):
      return f'a {self.key} of {self.value}'
    return self.key + (f'{self.relation}{self.value!r}' * bool(self.relation))

  def met(self, config: Any) -> str:
    """Returns the key that meets it, with its value."""
    key = _part_with(config, self.key) or self.key
    return f'{key}={_value(config, key)!r}'

  def mend(self, config: Any) -> str:
    """Returns what a Config needs to meet it no more."""
    key = _part_with(config, self.key) or self.key
    if key != self.key or self.relation == '=':
      return f'another {key}'
    if not self.relation:
      return f'{key}={type(_value(config, key))()!r}'
    value = self.value[0] if isinstance(self.value, tuple) else self.value
    return f'{key}={value!r}'


@functools.cache
def parse(text: str) -> Condition:
  """Returns a condition from its text."""
  match = FORM.fullmatch(text)
  assert match, text
  key, relation, value = match.groups()
  if not relation:
    return Condition(key, '', None)
  if ':' in value:
    return Condition(key, relation, values.choices_of(value))
  return Condition(key, relation, ast.literal_eval(value))


def check(config: Any, section: str) -> None:
  """Checks the conditions of the options of one section of a Config.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  held = operator.attrgetter(section)(config)
  kind: Any = type(held)
  default = _defaults(kind)
  for key, value, rules in values.options(held):
    if value != default[key]:
      check_option(config, f'{section}.{key}', value, default[key], rules)


def check_option(
  config: Any, key: str, value: Any, default: Any, rules: Mapping[str, Any]
) -> None:
  """Checks the conditions of an option that isn't at its default.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  for condition in map(parse, rules.get('needs', ())):
    if not condition.holds(config):
      needed = condition.needed(config)
      errors.refuse(
        key,
        value,
        f'it has no effect without {needed}: leave it at {default!r}',
      )
  for condition in map(parse, rules.get('excludes', ())):
    if condition.holds(config):
      errors.refuse(
        key,
        value,
        f'not available with {condition.met(config)}: give {default!r}, or '
        f'{condition.mend(config)}',
      )


def check_part(config: Any, part: Any, name: str) -> None:
  """Checks what a part, `name` as 'key=value', doesn't work with.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  for condition in map(parse, getattr(part, 'excludes', ())):
    if condition.holds(config):
      raise errors.InputError(
        f'{condition.met(config)}: not available with {name}: give '
        f'{condition.mend(config)}'
      )


@functools.cache
def _defaults(section):
  return {key: value for key, value, _ in values.options(section())}


def _part_with(config, key):
  """Returns the key that names the part with this attribute; '': an option."""
  section, _, name = key.partition('.')
  if section not in NAMES or '.' in name:
    return ''
  fields = dataclasses.fields(getattr(config, section))
  is_option = name in {field.name for field in fields}
  return '' if is_option else NAMES[section]


def _value(config, key):
  if key in config.given:
    return config.given[key]
  section, _, name = key.rpartition('.')
  return getattr(operator.attrgetter(section)(config), name, None)
