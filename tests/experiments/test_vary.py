"""Grids of the command line: combinations, their names and what is refused."""

import pytest

from rnn_jax import errors
from rnn_jax.experiments import plan
from rnn_jax.experiments import vary

CONFIG = 'configs/stdlib_bytes.py'
RATES = 'optimizer.learning_rate=1e-4,5e-4'


def make(*variations, settings=(), **common):
  return vary.make(CONFIG, variations, settings, common)


def test_all_combinations_are_named_by_what_they_change():
  grid = make(RATES, 'model.layers=1,2')
  assert grid.variants == {
    f'learning_rate={rate},layers={layers}': {
      'optimizer.learning_rate': rate,
      'model.layers': layers,
    }
    for rate in (0.0001, 0.0005)
    for layers in (1, 2)
  }
  assert grid.title == 'stdlib_bytes: learning_rate, layers'
  run = plan.make(grid)('learning_rate=0.0005,layers=2', 3)
  assert run.name == 'learning_rate=0.0005,layers=2,seed=3'
  assert run.config['optimizer']['learning_rate'] == 0.0005
  assert '--config.optimizer.learning_rate=0.0005' in run.flags


def test_seeds_are_the_config_s_or_those_that_vary():
  assert make(RATES).seeds == (0,)
  assert make(RATES, **{'train.seed': 5}).seeds == (5,)
  grid = make('train.seed=3,1')
  assert grid.seeds == (3, 1) and grid.variants == {'stdlib_bytes': {}}


VALUES = {
  '1,2': ['1', '2'],
  '(90,5,5),(80,10,10)': ['(90,5,5)', '(80,10,10)'],
  "'a,b',c": ['a,b', 'c'],
  "('x,y','z'),()": ["('x,y','z')", '()'],
  'x': ['x'],
  'length,': ['length', ''],
}


@pytest.mark.parametrize('text', VALUES)
def test_commas_separate_outside_of_brackets_and_quotes(text):
  assert vary.values_of(text) == VALUES[text]


def test_values_have_the_type_of_their_key():
  grid = make('data.splits=(90,5,5),(80,10,10)', 'cell.fused=false,true')
  assert [*grid.variants] == [
    f'splits={splits},fused={fused}'
    for splits in ('90-5-5', '80-10-10')
    for fused in ('False', 'True')
  ]
  first = next(iter(grid.variants.values()))
  assert first == {'data.splits': (90, 5, 5), 'cell.fused': False}


def test_a_part_and_its_keys_vary_together():
  grid = make('model.cell=attention', 'cell.window=8,16')
  assert [*grid.variants] == [
    'cell=attention,window=8',
    'cell=attention,window=16',
  ]
  grid = make('cell.window=8,16', settings=('model.cell=attention',))
  config = plan.make(grid, ('model.cell=attention',))('window=16', 0).config
  assert config['cell']['window'] == 16


def test_a_pattern_and_the_keys_of_its_cells_vary_together():
  cells = "model.cells=('gla','gla','attention')"  # its 3 layers
  for grid in (
    make(cells, 'cell.gla.rank=2,3'),
    make('cell.gla.rank=2,3', settings=(cells,)),
  ):
    first, last = grid.variants
    run = plan.make(grid, (cells,) if 'cells' not in first else ())(last, 0)
    assert run.config['model']['cells'] == ['gla', 'gla', 'attention']
    assert run.config['cell']['gla']['rank'] == 3


def test_names_are_folders_and_differ():
  path = 'texts/of a/*.txt'
  grid = make(f'data.path={path},texts_of_a__.txt', **{'data.source': 'text'})
  assert [*grid.variants] == ['path=texts_of_a_.txt', 'path=texts_of_a__.txt']
  grid = make('model.dropout=0.0,0.1', 'model.token_dropout=0.0')
  assert 'dropout=0.1,token_dropout=0.0' in grid.variants
  grid = make(f'data.path={"x" * 300}a,{"x" * 300}b', **{'data.source': 'text'})
  assert len({*grid.variants}) == 2
  assert max(map(len, grid.variants)) < 200


def test_where_tokens_vary_bits_per_byte_are_compared():
  assert make(RATES).metrics[0][0] == 'loss'
  grid = make('data.vocabulary=300,400', **{'data.tokenizer': 'bpe'})
  assert grid.metrics[0][0] == 'bits_per_byte'
  errors_first = make(RATES, **{'evaluate.criterion': 'errors'})
  assert errors_first.metrics[0][0] == 'accuracy'


BAD = {
  'an unknown key': (['model.widht=1'], 'model.widht: did you mean'),
  'a wrong type': (['model.width=64,wide'], "'width=wide': model.width='wide'"),
  'a limit': (['model.layers=0,1'], 'model.layers=0: give 1 or more'),
  'no value': (['model.width='], '--vary=model.width=: give section.key='),
  'no key': (['3'], '--vary=3: give section.key=value'),
  'a value twice': (['model.width=64,64'], 'give each value once'),
  'a key twice': (['model.width=64', 'model.width=32'], 'give each key once'),
  'a section': (['model=3'], 'model is a section'),
  'a seed that is none': (['train.seed=0,x'], '--vary=train.seed=0,x: give'),
  'too many': (
    [f'model.width={",".join(map(str, range(1, 102)))}', RATES, *(
      f'train.{key}={",".join(map(str, range(1, 11)))}'
      for key in ('steps', 'log_every')
    )],
    'at most 1000',
  ),
}  # fmt: skip


@pytest.mark.parametrize('case', BAD)
def test_what_is_wrong_is_refused(case):
  variations, message = BAD[case]
  with pytest.raises(errors.InputError, match=message):
    make(*variations)


def test_a_key_that_varies_is_not_given_for_every_run_too():
  with pytest.raises(errors.InputError, match='config.model.width=64: variant'):
    make('model.width=32,48', **{'model.width': 64})
