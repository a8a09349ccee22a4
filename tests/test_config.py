"""The configuration: what is accepted, and how the rest is refused."""

import dataclasses
import importlib.util
import pathlib
import pkgutil
import re

import ml_collections
import pytest

from rnn_jax import cells
from rnn_jax import config as config_lib
from rnn_jax import errors

CONFIGS = pathlib.Path(__file__).parent.parent / 'configs'
CELLS = sorted(
  {m.name for m in pkgutil.iter_modules(cells.__path__)} - {'base'}
)


def changed(**values):
  """The default config with `section__key=value`."""
  config = config_lib.default().to_dict()
  for key, value in values.items():
    section, _, name = key.partition('__')
    config[section][name] = value
  return config


def refusal(raw):
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(raw)
  return str(caught.value)


@pytest.mark.parametrize('cell', CELLS)
def test_the_default_has_every_key_and_parses_to_the_defaults(cell):
  default = config_lib.default(cell)
  options = config_lib.cell_options(cell)
  assert default.is_locked
  for section in dataclasses.fields(config_lib.Config):
    kind = options if section.name == 'cell' else section.type
    if dataclasses.is_dataclass(kind):
      keys = {field.name for field in dataclasses.fields(kind)}
      assert {*default[section.name]} == keys
  parsed = config_lib.parse(default)
  assert parsed.cell == options() and parsed.model.cell == cell
  rest = {'cell': None, 'model': config_lib.Model()}
  assert dataclasses.replace(parsed, **rest) == config_lib.Config()


def test_a_parsed_config_comes_back_as_plain_dicts():
  parsed = config_lib.parse(changed(data__boundaries=(64, 256)))
  plain = config_lib.to_dict(parsed)
  assert plain['data']['boundaries'] == (64, 256)
  assert config_lib.parse(plain) == parsed
  assert config_lib.parse(ml_collections.ConfigDict(plain)) == parsed


def test_keys_left_out_have_their_defaults():
  parsed = config_lib.parse({'model': {'layers': 3}})
  assert parsed.model == config_lib.Model(layers=3)
  assert parsed.data == config_lib.Data() and parsed.cell.heads == 4


@pytest.mark.parametrize(
  'path', sorted(CONFIGS.glob('*.py')), ids=lambda path: path.stem
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
    ({'remat': {'zzz': 2}}, "unknown config key remat.zzz: keys: ['every']"),
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
def test_a_section_that_is_no_section_is_refused(section):
  assert refusal({section: 3}).startswith(f'{section}=3: give keys: [')


@pytest.mark.parametrize('value', (float('nan'), float('inf')))
def test_a_number_that_is_not_finite_is_refused(value):
  message = refusal(changed(optimizer__learning_rate=value))
  assert message == f'optimizer.learning_rate={value!r}: give a finite number'


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


@pytest.mark.parametrize(('key', 'choices'), config_lib.CHOICES.items())
def test_a_word_that_is_no_choice_is_refused_with_the_choices(key, choices):
  message = refusal(changed(**{key.replace('.', '__'): 'other'}))
  assert message == f"{key}='other': choose one of {choices}"


@pytest.mark.parametrize(('key', 'least'), config_lib.AT_LEAST.items())
def test_a_number_below_its_least_is_refused(key, least):
  name = key.replace('.', '__')
  message = refusal(changed(**{name: least - 1}))
  assert re.fullmatch(rf'{key}=-?[\d.]+: give {least} or more', message)


@pytest.mark.parametrize('key', config_lib.BELOW_ONE)
def test_a_share_outside_0_to_1_is_refused(key):
  for value in (-0.1, 1.0):
    message = refusal(changed(**{key.replace('.', '__'): value}))
    assert message == f'{key}={value}: give a number in [0, 1)'


@pytest.mark.parametrize(
  ('change', 'message'),
  (
    ({'data__splits': (90, 5, 4)}, 'three percentages with sum 100'),
    ({'data__splits': (90, 10)}, 'three percentages with sum 100'),
    ({'data__splits': (110, -5, -5)}, 'three percentages with sum 100'),
    ({'data__splits': (0, 50, 50)}, 'leave something to train on'),
    ({'data__boundaries': (64, 32, 256)}, 'give rising lengths'),
    ({'data__boundaries': (64, 64, 256)}, 'give rising lengths'),
    ({'data__boundaries': (0, 256)}, 'give lengths above 0'),
    ({'data__boundaries': (64, 128)}, 'end with data.length=256'),
    ({'data__carry_state': True}, "it needs data.layout='stream'"),
    ({'data__tokens_per_batch': 255}, 'train.accumulate = 256 or more'),
    (
      {'train__accumulate': 2, 'data__tokens_per_batch': 300},
      'data.tokens_per_batch=300.*train.accumulate = 512 or more',
    ),
    ({'train__accumulate': 5}, 'train.accumulate=5: it must divide .*=32'),
    ({'model__embedding_width': 64}, 'needs model.width=128'),
    (
      {
        'model__embedding_width': 64,
        'model__block': 'plain',
        'model__tied': True,
      },
      'model.tied=True: a tied head needs embedding_width = width',
    ),
    ({'model__block': 'plain', 'model__mlp_width': 8}, 'mlp_width=8.*no MLP'),
    ({'schedule__warmup_steps': 1001}, 'give at most train.steps=1000'),
    ({'remat__every': 'often'}, "remat.every='often': .* or 'sqrt'"),
    ({'remat__every': -1}, 'remat.every=-1: give 0 or more'),
    (
      {'remat__every': 'sqrt', 'recurrence__impl': 'associative'},
      "remat.every='sqrt': recurrence.impl 'associative' keeps all",
    ),
    ({'remat__every': 20}, 'remat.every=20: .*multiple of 16'),
    (
      {'remat__every': 20, 'recurrence__impl': 'chunked'},
      'remat.every=20: .*multiple of 16',
    ),
    ({'model__cell': 'lstn'}, r"model.cell='lstn': choose one of \["),
    ({'cell__heads': 0}, 'cell.heads=0: give 1 or more'),
  ),
)
def test_values_that_contradict_each_other_are_refused(change, message):
  found = refusal(changed(**change))
  assert re.search(message, found)
  assert re.match(r'[a-z]+[.][a-z_]+=', found)  # the key and its value


def test_differences_name_each_leaf_that_changed():
  old = config_lib.to_dict(config_lib.parse(changed()))
  new = config_lib.to_dict(
    config_lib.parse(changed(model__layers=3, cell__heads=2))
  )
  del new['train']['seed']
  new['data']['splits'] = [90, 5, 5]  # as JSON gives tuples back
  assert config_lib.differences(old, new) == [
    'cell.heads: 4 -> 2',
    'model.layers: 2 -> 3',
    "train.seed: 0 -> '(absent)'",
  ]
  assert config_lib.differences(old, old) == []


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
