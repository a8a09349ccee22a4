"""A grid that contradicts itself is refused before anything runs."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan
from rnn_jax.system import subprocesses
from tests.experiments import made

BAD = {
  'no variants': ({'variants': {}}, 'variants={}: name one'),
  'a name that is no folder': ({'variants': {'a/b': {}}}, "variants='a/b'"),
  'a hidden name': ({'variants': {'.5': {}}}, "variants='.5': .*not first"),
  'a folder above': ({'variants': {'..': {}}}, "variants='..': it names a f"),
  'overrides that are no dict': ({'variants': {'a': 3}}, r"variants\['a'\]=3"),
  'no such baseline': ({'baseline': 'thin'}, "baseline='thin'.*'narrow'"),
  'no seeds': ({'seeds': ()}, r'seeds=\(\)'),
  'a seed twice': ({'seeds': (1, 1)}, r'seeds=\(1, 1\): give different'),
  'a fractional seed': ({'seeds': (0.5,)}, r'seeds=\(0.5,\)'),
  'a seed below 0': ({'seeds': (-1,)}, r'seeds=\(-1,\)'),
  'other commands': ({'commands': ('evaluate',)}, 'commands='),
  'commands in no order': (
    {'commands': ('train', 'profile', 'evaluate')},
    "commands=.*: begin with 'train'",
  ),
  'no budget': (
    {'commands': ('train', 'find_batch_size')},
    "memory_gib=0.0: give it with 'find_batch_size' in commands",
  ),
  'no such split': ({'split': 'dev'}, "split='dev'.*'validation'"),
  'a split that is not read': (
    {'commands': ('train',), 'split': 'test'},
    "split='test': without 'evaluate'",
  ),
  'no metrics': ({'metrics': ()}, r'metrics=\(\)'),
  'a metric without a label': (
    {'metrics': (('loss', 'lower'),)},
    r"metrics=\('loss', 'lower'\): give \(key",
  ),
  'a metric without a direction': (
    {'metrics': (('loss', 'down', 'loss'),)},
    "the second is one of.*'lower'",
  ),
  'a metric twice': (
    {'metrics': (('loss', 'lower', 'a'), ('loss', 'lower', 'b'))},
    'give each once',
  ),
  'a note on no metric': (
    {'notes': {'paper': {'f1': 0.5}}},
    r"notes\['paper'\]='f1': choose one of metrics: \['loss'",
  ),
  'a note that is no number': (
    {'notes': {'paper': {'loss': 'low'}}},
    "'low': give a finite number",
  ),
}


@pytest.mark.parametrize('case', BAD)
def test_a_contradiction_names_field_value_and_remedy(case):
  fields, message = BAD[case]
  with pytest.raises(errors.InputError, match=message):
    grid_lib.check(made.grid(**fields))


def test_a_good_grid_passes():
  variants = {'narrow': {}, 'lr-3e-4_v1.5': {}}
  grid = made.grid(notes={'paper': {'loss': 2}}, variants=variants)
  grid_lib.check(grid)
  assert [metric.key for metric in grid.compared] == ['loss', 'accuracy']


FILES = {
  'no function': ('x = 1', r'it has no get_grid\(\): write one'),
  'an error': (
    'import no_such_module',
    'ModuleNotFoundError.*correct the',
  ),
  'no grid': ('def get_grid():\n  return {}', r'returns dict: return a rnn_'),
}


@pytest.mark.parametrize('case', FILES)
def test_a_file_without_a_grid(case, tmp_path):
  text, message = FILES[case]
  (tmp_path / 'grid.py').write_text(text)
  with pytest.raises(errors.InputError, match=message):
    grid_lib.load(str(tmp_path / 'grid.py'))


def test_no_file(tmp_path):
  with pytest.raises(errors.InputError, match='--grid=none.py: no such file'):
    grid_lib.load('none.py')
  (tmp_path / 'grid.txt').touch()
  with pytest.raises(errors.InputError, match=r'give a Python file'):
    grid_lib.load(str(tmp_path / 'grid.txt'))


GRIDS = sorted((subprocesses.ROOT / 'configs' / 'experiments').glob('[!_]*.py'))


def configs_of(path):
  """{variant: Config} of a grid."""
  grid = grid_lib.load(str(path))
  planned = plan.make(grid)
  return {
    name: config_lib.parse(planned(name, 0).config) for name in grid.variants
  }


@pytest.mark.parametrize('path', GRIDS, ids=lambda path: path.stem)
def test_the_grids_of_the_checkout_make_whole_and_different_configs(path):
  grid = grid_lib.load(str(path))
  planned = plan.make(grid)
  variants = [repr(planned(name, 0).config) for name in grid.variants]
  assert len(set(variants)) == len(variants) > 0


def test_the_memory_lab_s_variants_are_what_their_names_say():
  variants = configs_of(subprocesses.ROOT / 'configs/experiments/memory_lab.py')
  assert len(variants) == 8
  for name, config in variants.items():
    flash = name.startswith(('flash', 'window'))
    assert config.recurrence.impl == ('blocked' if flash else 'exact')
    assert (config.train.precision == 'bfloat16') == (
      flash or 'bfloat16' in name
    )
    assert config.remat.layers == ('checkpoints' in name)
  assert variants['window_256'].cell.window == 256


@pytest.mark.parametrize('name', ('rotten_tomatoes', 'daily_dialog'))
def test_simple_rnn_s_variants_are_the_published_ones_and_ours(name):
  variants = configs_of(
    subprocesses.ROOT / 'configs' / 'experiments' / f'{name}.py'
  )
  published = config_lib.parse(
    grid_lib.call('configs/published.py', 'get_config', 'config')
  )
  for preset in ('simple', 'modified'):
    assert variants[preset].cell.preset == preset
    dropout = 0.1 if preset == 'modified' else 0.0
    assert (
      variants[preset].cell.dropout == variants[preset].model.dropout == dropout
    )
    for key in ('block', 'layers', 'width', 'mlp_width', 'tied'):
      assert getattr(variants[preset].model, key) == getattr(
        published.model, key
      )
    assert variants[preset].cell.widths == published.cell.widths
  assert variants['improved'].cell.attention == 'none'
  assert variants['improved_luong'].cell.attention == 'dot'
