"""The configuration: what is accepted, and messages for the rest."""

import contextlib
import dataclasses
import functools
import importlib.util
import pathlib

import ml_collections
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import parts

CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'
CELLS = config_lib.names('cells')


def changed(**given):
  """The default config with `section__key=value`; parts bring their keys."""
  raw = config_lib.default()
  values = {key.replace('__', '.'): given[key] for key in given}
  for key in [key for key in values if key in parts.BY_KEY]:
    with contextlib.suppress(errors.InputError, TypeError):  # see the refusal
      config_lib.override(raw, {key: values[key]})
  config = raw.to_dict()
  for key, value in values.items():
    *sections, name = key.split('.')
    functools.reduce(dict.get, sections, config)[name] = value
  return config


def refusal(raw):
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(raw)
  return str(caught.value)


@pytest.mark.parametrize('cell', CELLS)
def test_the_default_has_every_key_and_parses_to_the_defaults(cell):
  default = config_lib.default(cell)
  options = config_lib.load('cells', cell, 'model.cell').Config
  assert default.is_locked
  parsed = config_lib.parse(default)
  *sections, given = dataclasses.fields(config_lib.Config)
  assert given.name == 'given' and given.name not in default
  for section in sections:
    made = getattr(parsed, section.name)
    keys = {field.name for field in dataclasses.fields(made)}
    assert {*default[section.name]} == keys
    if section.name in parts.SECTIONS:
      assert made == config_lib.section(section.name) or made == parsed.cell
    else:
      assert made == type(made)() or made == parsed.model
  assert parsed.cell == options().resolve(parsed)
  assert parsed.model == config_lib.Model(cell=cell)


def test_a_parsed_config_comes_back_as_plain_dicts():
  parsed = config_lib.parse(changed(data__boundaries=(64, 256)))
  plain = config_lib.to_dict(parsed)
  assert plain['data']['boundaries'] == (64, 256)
  assert config_lib.parse(plain) == parsed
  assert config_lib.parse(ml_collections.ConfigDict(plain)) == parsed


def test_keys_left_out_have_their_defaults():
  parsed = config_lib.parse({'model': {'layers': 3}})
  assert parsed.model == config_lib.Model(layers=3)
  assert parsed.data == config_lib.section('data')
  assert parsed.cell.heads == 4


@pytest.mark.parametrize(
  'path', sorted(CONFIGS.glob('[!_]*.py')), ids=lambda path: path.stem
)
def test_each_file_of_configs_parses(path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  assert module.__doc__ and f'configs/{path.name}' in module.__doc__
  assert isinstance(config_lib.parse(module.get_config()), config_lib.Config)


@pytest.mark.parametrize(
  ('raw', 'message'),
  (
    ({'modle': {}}, "unknown config key modle: did you mean 'model'?"),
    (
      {'model': {'layer': 2}},
      "unknown config key model.layer: did you mean 'layers'?",
    ),
    (
      {'cell': {'head': 2}},
      "unknown config key cell.head: did you mean 'heads'?",
    ),
    (
      {'remat': {'zzz': 2}},
      "unknown config key remat.zzz: keys: ['every', 'schedule', 'kept', "
      "'memory_gib', 'segment', 'layers', "
      "'stored_layers', 'keep', 'offload']",
    ),
  ),
)
def test_an_unknown_key_is_named_with_the_nearest_known(raw, message):
  assert refusal(raw) == message


@pytest.mark.parametrize(
  ('key', 'value', 'found', 'wanted'),
  (
    ('model.layers', '2', 'str', 'int'),
    ('model.layers', 2.0, 'float', 'int'),
    ('model.layers', True, 'bool', 'int'),
    ('model.layers', None, 'NoneType', 'int'),
    ('model.tied', 1, 'int', 'bool'),
    ('model.dropout', '0.1', 'str', 'float'),
    ('model.cell', 3, 'int', 'str'),
    ('data.boundaries', 256, 'int', 'tuple'),
    ('data.splits', '90', 'str', 'tuple'),
    ('remat.every', 2.5, 'float', 'int | str'),
    ('remat.every', True, 'bool', 'int | str'),
    ('cell.heads', 2.0, 'float', 'int'),
  ),
)
def test_a_wrong_type_is_refused_with_the_right_one(key, value, found, wanted):
  message = refusal(changed(**{key.replace('.', '__'): value}))
  assert message == f'{key}={value!r} is of type {found}: give {wanted}'


def test_an_item_of_a_wrong_type_is_refused():
  message = refusal(changed(data__splits=(90, 5.0, 5)))
  assert message == 'data.splits=5.0 is of type float: give int'


@pytest.mark.parametrize('section', ('model', 'cell', 'data'))
def test_a_section_of_another_type_is_refused(section):
  assert refusal({section: 3}).startswith(f'{section}=3: give keys: [')


@pytest.mark.parametrize('value', (float('nan'), float('inf'), 1e300, -1e39))
def test_a_number_that_float32_lacks_is_refused(value):
  message = refusal(changed(optimizer__learning_rate=value))
  assert message.startswith(
    f'optimizer.learning_rate={value!r}: give a finite number'
  )


def test_whole_numbers_serve_as_fractions_and_lists_as_tuples():
  parsed = config_lib.parse(
    changed(optimizer__clip_norm=1, data__splits=[80, 10, 10])
  )
  assert type(parsed.optimizer.clip_norm) is float
  assert parsed.data.splits == (80, 10, 10)


def test_a_flag_s_number_of_steps_between_states_is_a_number():
  assert config_lib.parse(changed(remat__every='32')).remat.every == 32
  assert config_lib.parse(changed(remat__every='sqrt')).remat.every == 'sqrt'
  assert "'sqrt'" in refusal(changed(remat__every='²'))


def test_the_square_root_of_the_length_is_rounded_up():
  found = [config_lib.remat_length('sqrt', n) for n in (1, 2, 4, 5, 16, 17)]
  assert found == [1, 2, 2, 3, 4, 5]
  assert [config_lib.remat_length(n, 100) for n in (0, 7)] == [0, 7]


def test_a_name_in_the_config_is_a_file_in_a_folder():
  module = config_lib.load('cells', 'simple_rnn', 'model.cell')
  assert module.__name__ == 'rnn_jax.cells.simple_rnn'
  assert config_lib.load('data/sources', 'text', 'data.source').__doc__
  with pytest.raises(errors.InputError, match="data.source='x'.*'text'"):
    config_lib.load('data/sources', 'x', 'data.source')


@pytest.mark.parametrize(
  ('length', 'expected'), ((20, (8, 16, 20)), (16, (8, 16)), (5, (5,)))
)
def test_padded_lengths_are_multiples_and_the_longest(length, expected):
  given = {'layout': 'padded', 'length': length, 'length_multiple': 8}
  assert config_lib.section('data', **given).row_lengths() == expected
