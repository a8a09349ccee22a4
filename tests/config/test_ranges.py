"""Each choice and range refuses what is outside, with what is inside."""

import dataclasses
import re

import pytest

from rnn_jax import config as config_lib
from rnn_jax.config import parts
from rnn_jax.config import values
from tests.config import test_config


def limited():
  """{(section, key): (value, limits)} of every option, each where it is first.

  Parts of a kind inherit options: one of them has each.
  """
  found, known = {}, set()
  config = config_lib.parse({})
  for kind in parts.KINDS:
    for name in config_lib.names(kind.folder):
      section, key = kind.place
      given = {key: name} if section == kind.section else {}
      if section == 'data' and 'image' in name:
        given['layout'] = 'images'
      made = config_lib.section(kind.section, **given)
      for option, value, limits in values.options(made):
        owner = owner_of(type(made), option.partition('.')[0])
        if (owner, option) not in known:
          found[made, f'{kind.section}.{option}'] = value, limits
        known.add((owner, option))
  for key, value, limits in values.options(config):
    if key.partition('.')[0] not in parts.SECTIONS:
      found[config, key] = value, limits
  return {place: each for place, each in found.items() if each[1]}


def owner_of(cls, field):
  """The class whose body has a field."""
  return next(
    x for x in cls.__mro__ if field in vars(x).get('__annotations__', ())
  )


LIMITED = limited()


def having(limit):
  """[(section, key, the limit)] of the options that have one."""
  return [
    pytest.param(made, key, limits[limit], id=f'{type(made).__module__}.{key}')
    for (made, key), (_, limits) in LIMITED.items()
    if limits[limit] not in (None, ())
  ]


def refusal(made, key, value):
  """What is said of a section, or a Config, with another value of a key."""
  path = key.split('.')
  raw = dataclasses.asdict(made)
  if not isinstance(made, config_lib.Config):
    raw = {path[0]: raw}
    if path[0] == 'cell':
      raw['model'] = {'cell': type(made).__module__.rpartition('.')[2]}
  held = raw
  for part in path[:-1]:
    held = held[part]
  held[path[-1]] = value
  return test_config.refusal(raw)


@pytest.mark.parametrize(('made', 'key', 'choices'), having('choices'))
def test_an_unknown_choice_is_refused_with_the_choices(made, key, choices):
  choices = values.choices_of(choices)
  value = 'other' if isinstance(choices[0], str) else 2
  message = refusal(made, key, value)
  assert message == f'{key}={value!r}: choose one of {choices}'


@pytest.mark.parametrize(('made', 'key', 'minimum'), having('minimum'))
def test_a_number_below_its_minimum_is_refused(made, key, minimum):
  kind = type(LIMITED[made, key][0])
  message = refusal(made, key, kind(minimum - 1))
  assert re.fullmatch(rf'{key}=-?[\d.]+: give {minimum} or more', message)


@pytest.mark.parametrize(('made', 'key', 'maximum'), having('maximum'))
def test_a_number_above_its_maximum_is_refused(made, key, maximum):
  kind = type(LIMITED[made, key][0])
  for value in map(kind, (maximum + 1, 2**64)):
    message = refusal(made, key, value)
    assert message == f'{key}={value}: give {maximum} or less'


@pytest.mark.parametrize(('made', 'key', 'below'), having('below'))
def test_a_number_outside_0_to_1_is_refused(made, key, below):
  assert below == 1
  for value in (-0.1, 1.0):
    message = refusal(made, key, value)
    assert message == f'{key}={value}: give a number in [0, 1) as float32'
  assert 'as float32' in refusal(made, key, 0.9999999999)


@pytest.mark.parametrize(('made', 'key', 'above'), having('above'))
def test_a_number_that_is_not_above_its_limit_is_refused(made, key, above):
  assert above == 0
  for value in (0.0, -0.1, 1e-60):
    message = refusal(made, key, value)
    assert message == f'{key}={value}: give a number above 0 as float32'


def test_every_seed_has_a_minimum_and_a_maximum():
  seeds = {
    key: limits
    for (_, key), (_, limits) in LIMITED.items()
    if key.endswith('seed')
  }
  generated = (
    'synthetic',
    'mqar',
    'word_problem',
    'modular_arithmetic',
    'mad',
    'listops',
  )
  follow = {'train.order_seed', 'train.weights_seed'}  # -1: train.seed
  assert {*seeds} == {
    'train.seed',
    *follow,
    *(f'data.{x}.seed' for x in generated),
  }
  for key, limits in seeds.items():
    assert limits['minimum'] == -(key in follow)
    assert limits['maximum'] == 2**32 - 1
