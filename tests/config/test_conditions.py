"""Every option and part refuses what it says that it needs or excludes."""

import dataclasses
import types

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import conditions
from rnn_jax.config import parts
from rnn_jax.config import pattern
from rnn_jax.config import values
from tests.config import test_config

# Parts with an attribute that conditions name: the key of the part, its name.
WITH = {
  'task.per_token=False': ('task.name', 'classification'),
  'task.predicts_all=False': ('task.name', 'dialogue'),
  'task.reads_images': ('task.name', 'image_classification'),
  'data.cuts_documents': ('data.layout', 'stream'),
  'optimizer.gradients_elsewhere': ('optimizer.name', 'schedule_free'),
  'schedule.rescales': ('schedule.name', 'plateau'),
}
BASE = config_lib.parse({})


def configs():
  """Yields (key, name, a Config with this part, unchecked)."""
  for kind in parts.KINDS:
    section, key = kind.place
    for name in config_lib.names(kind.folder):
      cls = parts.options(kind, name)
      if kind.section == 'data':  # its class combines two parts
        own = dataclasses.make_dataclass(
          'Own', (), bases=(cls, config_lib.Data), frozen=True
        )()
      else:
        own = cls()
      yield kind, name, dataclasses.replace(BASE, **{kind.section: own})


def declared():
  """Yields (Config, section, key, 'needs' or 'excludes', condition)."""
  found = {}
  for kind, _, config in [*configs(), (None, '', BASE)]:
    names = [field.name for field in dataclasses.fields(config)[:-1]]
    for section in [kind.section] if kind else names:
      held = getattr(config, section)
      if isinstance(held, pattern.Options):
        continue  # its cells say it, and it checks each of them
      for key, _, rules in values.options(held, f'{section}.'):
        for rule in ('needs', 'excludes'):
          for condition in rules.get(rule, ()):
            place = type(held).__module__, key, rule, condition
            found.setdefault(place, (config, key, rule, condition))
  return [pytest.param(*each, id='-'.join(x)) for x, each in found.items()]


def another(value):
  """A value that isn't the default."""
  if isinstance(value, bool):
    return not value
  if isinstance(value, (int, float)):
    return value + 1
  return 'x' if isinstance(value, str) else ('x',)


def meeting(config, text):
  """A Config that meets a condition, and the key that says so."""
  if text in WITH:
    (key, name), section = WITH[text], text.partition('.')[0]
    own = config_lib.section(section, **{key.partition('.')[2]: name})
    return dataclasses.replace(config, **{section: own}), key
  key, relation, value = conditions.parse(text)
  if isinstance(value, tuple):
    value = value[0] if relation == '=' else another(value[0])
  elif relation != '=':
    value = another(values.flat(config)[key] if value is None else value)
  return values.replaced(config, {key: value}), key


def lacking(config, text):
  """A Config that doesn't meet a condition."""
  condition = conditions.parse(text)
  if not condition.holds(config):
    return config
  if text in WITH:
    section = text.partition('.')[0]
    return dataclasses.replace(config, **{section: getattr(BASE, section)})
  value = {'': 0, '>': 0, '=': 'other'}[condition.relation]
  return values.replaced(config, {condition.key: value})


@pytest.mark.parametrize(('config', 'key', 'rule', 'condition'), declared())
def test_what_an_option_says_of_other_keys_holds(config, key, rule, condition):
  default = values.flat(config)[key]
  value = another(default)
  words = 'it has no effect without '
  if rule == 'needs':
    wrong, right = lacking(config, condition), meeting(config, condition)[0]
  else:
    wrong, met = meeting(config, condition)
    right, words = lacking(config, condition), f'not available with {met}='
  arguments = key, value, default, {rule: (condition,)}
  with pytest.raises(errors.InputError) as caught:
    conditions.check_option(wrong, *arguments)
  assert str(caught.value).startswith(f'{key}={value!r}: {words}')
  conditions.check_option(right, *arguments)


@pytest.mark.parametrize(
  ('kind', 'name', 'config', 'condition'),
  [
    pytest.param(kind, name, config, each, id=f'{name}-{each}')
    for kind, name, config in configs()
    for each in getattr(config, kind.section).excludes
  ],
)
def test_a_part_is_not_available_with_what_it_excludes(
  kind, name, config, condition
):
  part = types.SimpleNamespace(excludes=(condition,))
  named = f'{kind.key}={name!r}'
  wrong, met = meeting(config, condition)
  with pytest.raises(errors.InputError) as caught:
    conditions.check_part(wrong, part, named)
  assert str(caught.value).startswith(f'{met}=')
  assert f': not available with {named}: give ' in str(caught.value)


def test_help_shows_the_limits_and_conditions_of_every_key():
  shown = dict(config_lib.usage(config_lib.default()))
  assert len(shown) == len(values.flat(BASE))
  assert shown['mesh.micro_batches=0'] == 'from 0; needs mesh.pipe>1'
  assert shown["remat.schedule='uniform'"].endswith('; needs remat.every')
  assert shown['train.epochs=0.0'] == 'from 0; not with train.steps'
  assert shown["mesh.compression=''"] == "one of '', 'int8', 'top_k'"


def test_checks_read_the_conditions_of_options_and_parts():
  raw = test_config.changed
  for change, words in (
    ({'mesh__micro_batches': 2}, 'mesh.pipe>1: leave it at 0'),
    ({'mesh__micro_batches': 2, 'mesh__pipe': 2}, ''),
    ({'model__experts__balance': 1.0}, 'without model.experts.count'),
    (
      {'model__cell': 'attention', 'cell__norm_plus_one': True},
      'without cell.qk_norm',
    ),
    (
      {
        'model__cells': ('gla', 'attention'),
        'cell__attention__norm_plus_one': True,
      },
      'cell.attention.norm_plus_one=True: it has no effect without cell.atten',
    ),
    ({'task__name': 'recall', 'remat__segment': 8}, "with task.name='recall'"),
  ):
    if words:
      assert words in test_config.refusal(raw(**change))
    else:
      config_lib.parse(raw(**change))
