"""A run's config is the grid's config file, changed by what is asked for."""

import json

import pytest

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.experiments import plan
from rnn_jax.system import subprocesses
from tests.experiments import made


def test_a_run_has_the_whole_config_and_the_flags_that_make_it():
  run = plan.make(made.grid(), ('train.steps=700',))('narrow', 3)
  base = plan.make(made.grid())('wide', 0)
  assert values.differences(base.config, run.config) == [
    'model.width: 192 -> 96',
    'train.seed: 0 -> 3',
    'train.steps: 1500 -> 700',
  ]
  assert run.name == 'narrow/seed3'
  assert run.overrides == {'model.width': 96, 'train.steps': 700}
  assert run.flags == (
    '--config=configs/stdlib_bytes.py',
    '--config.model.width=96',
    '--config.train.steps=700',
    '--config.train.seed=3',
  )
  assert json.loads(json.dumps(run.config)) == run.config


def test_a_variant_changes_no_other():
  planned = plan.make(made.grid())
  before = planned('wide', 0)
  planned('narrow', 1)
  assert planned('wide', 0) == before


SETTINGS = {
  'data.path=a=b/*.txt': 'a=b/*.txt',
  'data.path=7': '7',
  'model.width=64': 64,
  'optimizer.learning_rate=1e-2': 0.01,
  'optimizer.clip_norm=1': 1.0,
  'cell.fused=false': False,
  "data.classes=('x','y')": ['x', 'y'],
  'remat.every=sqrt': 'sqrt',
  'remat.every=16': 16,
}


@pytest.mark.parametrize('text', SETTINGS)
def test_a_setting_takes_the_type_of_its_key(text):
  grid = made.grid(variants={'a': {}}, baseline='')
  run = plan.make(grid, (text, 'data.source=text'))('a', 0)
  section, _, name = text.partition('=')[0].partition('.')
  value = run.config[section][name]
  assert value == SETTINGS[text] and type(value) is type(SETTINGS[text])


BAD_SETTINGS = {
  'data.path': '--set=data.path: give section.key=value',
  'data.lenght=3': "config key data.lenght: did you mean 'data.length'",
  'data.path=x': "data.path='x': data.source='python_stdlib' has no such key",
  'data=x': 'data is a section',
  'model.layers=wide': "model.layers='wide' is of type str: give int",
  'cell.fused=2': "cell.fused='2' is of type str: give bool",
  'model.width=64': "--set=model.width=64: variant 'narrow' sets it too",
  'train.seed=1': 'train.seed=1 .*--seeds',
}


@pytest.mark.parametrize('text', BAD_SETTINGS)
def test_a_wrong_setting(text):
  with pytest.raises(errors.InputError, match=BAD_SETTINGS[text]):
    plan.make(made.grid(), (text,))


BAD_OVERRIDES = {
  'an unknown key': ({'model.widht': 3}, "'x': unknown.*model.widht.*width"),
  'an unknown section': ({'modle.width': 3}, "did you mean 'model.width'"),
  'a key too deep': ({'model.width.a': 3}, 'unknown config key model.width.a'),
  'a section': ({'model': {}}, "variant 'x': model is a section"),
  'a wrong type': ({'model.width': 'wide'}, "variant 'x': model.width='wide'"),
  'a contradiction': (
    {'model.block': 'plain'},
    "variant 'x': model.mlp_width=384: it has no effect without",
  ),
  'a seed': ({'train.seed': 3}, "train.seed=3 of variant 'x'"),
}


@pytest.mark.parametrize('case', BAD_OVERRIDES)
def test_a_wrong_override_is_found_in_any_variant(case):
  overrides, message = BAD_OVERRIDES[case]
  grid = made.grid(variants={'good': {}, 'x': overrides}, baseline='')
  with pytest.raises(errors.InputError, match=message):
    plan.make(grid)


def test_a_config_is_found_here_or_in_the_checkout(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  run = plan.make(made.grid())('wide', 0)
  assert run.flags[0] == f'--config={subprocesses.ROOT}/configs/stdlib_bytes.py'
  with pytest.raises(errors.InputError, match="config='none.py': no such"):
    plan.make(made.grid(config='none.py'))


def test_a_config_has_a_name(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert plan.find('recall') == str(subprocesses.ROOT / 'configs/recall.py')
  with pytest.raises(errors.InputError, match="did you mean 'recall'"):
    plan.find('recal')


SELECTIONS = {
  ('', ''): ['a/seed0', 'a/seed1', 'ab/seed0', 'ab/seed1'],
  ('b', ''): ['ab/seed0', 'ab/seed1'],
  ('^a/', ''): ['a/seed0', 'a/seed1'],
  ('', 'seed1$'): ['a/seed0', 'ab/seed0'],
  ('seed1', '^ab/'): ['a/seed1'],
}


def planned_runs():
  grid = made.grid(variants={'a': {}, 'ab': {}}, baseline='')
  planned = plan.make(grid)
  return [
    planned(variant, seed) for variant in grid.variants for seed in (0, 1)
  ]


@pytest.mark.parametrize('given', SELECTIONS)
def test_only_and_skip(given):
  chosen = plan.select(planned_runs(), *given)
  assert [run.name for run in chosen] == SELECTIONS[given]


def test_a_selection_that_leaves_nothing():
  with pytest.raises(errors.InputError, match='--only=wide.*none.*ab/seed1'):
    plan.select(planned_runs(), 'wide')
  with pytest.raises(errors.InputError, match=r'--skip=\(: not a regular'):
    plan.select(planned_runs(), '', '(')
