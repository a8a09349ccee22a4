"""Parts outside of the package, one file each, named by their modules."""

import importlib
import sys

import numpy as np
import pytest
from absl import flags

from launch import command
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import parts
from rnn_jax.runs import metrics
from rnn_jax.system import target
from rnn_jax.training import assembly
from rnn_jax.training import loop
from rnn_jax.training import resolve
from tests.config import test_config

OWN = {
  'task.name': 'tests.support.own.second_half',
  'data.source': 'tests.support.own.counting',
  'data.layout': 'tests.support.own.single',
  'optimizer.name': 'tests.support.own.sign',
  'schedule.name': 'tests.support.own.halving',
}
KEYS = {
  'task.begin': 0.25,
  'data.count': 40,
  'data.reversed_rows': True,
  'optimizer.dead_zone': 1e-6,
  'schedule.half_life': 3,
}
SMALL = {
  'data.length': 64,
  'data.batch_size': 4,
  'data.workers': 0,
  'model.width': 16,
  'model.layers': 1,
  'cell.heads': 2,
  'cell.key_width': 4,
  'cell.value_width': 4,
  'train.steps': 8,
  'train.log_every': 1,
  'train.checkpoint_every': 8,
  'evaluate.every': 0,
  'schedule.warmup_steps': 0,
  'sample.new_tokens': 0,
}
# One of the package's for each kind, and a key that only it has.
FOREIGN = (
  ('task.name', 'dialogue', 'task.turns', 'all'),
  ('data.source', 'text', 'data.path', 'x'),
  ('data.layout', 'sorted', 'data.pool', 3),
  ('optimizer.name', 'lars', 'optimizer.trust', 0.1),
  ('schedule.name', 'plateau', 'schedule.patience', 3),
  ('model.cell', 'bdh', 'cell.neurons', 8),
)


def raw_config():
  raw = config_lib.default()
  config_lib.override(raw, {**KEYS, **OWN, **SMALL})  # keys before their part
  return raw


@pytest.mark.slow
def test_one_of_each_kind_trains_and_its_options_count(tmp_path):
  parsed = config_lib.parse(raw_config())
  progress = loop.train(parsed, str(tmp_path))
  assert progress.finished
  rows = [x for x in metrics.read(str(tmp_path)) if x['split'] == 'train']
  assert rows[-1]['loss'] < rows[0]['loss']
  rates = [row['learning_rate'] for row in rows]
  expected = [1e-3 * 0.5 ** (step // 3) for step in range(8)]
  np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('axes', 'message'),
  (
    ('DxSxS', "has 1 axes, of shape (16,), and 'DxSxS' in LOGICAL_AXES of "),
    ('DxS', "and 'DxS' in LOGICAL_AXES of its file names 2: name each, joined"),
  ),
)
def test_wrong_logical_axes_name_cell_parameter_and_ranks(
  axes, message, monkeypatch, tmp_path
):
  cell = 'tests.support.own.average'
  raw = raw_config()
  config_lib.override(raw, {'model.cell': cell})
  module = importlib.import_module(cell)
  wrong = dict.fromkeys(module.LOGICAL_AXES, axes)
  monkeypatch.setattr(module, 'LOGICAL_AXES', wrong)
  with pytest.raises(errors.InputError) as caught:
    assembly.make(resolve.resolve(config_lib.parse(raw)), tmp_path)
  refusal = str(caught.value)
  assert refusal.startswith(f'model.cell={cell!r}: stack/blocks/cell/'), refusal
  assert message in refusal


@pytest.mark.slow
def test_the_memory_of_a_step_that_ran_is_known_without_compiling(tmp_path):
  kept = {}
  parsed = config_lib.parse(raw_config())
  loop.train(parsed, str(tmp_path), hooks=[lambda x: kept.update(trainer=x)])
  programs = kept['trainer'].programs
  traces = programs.traces
  (step_bytes,) = {
    row['step_bytes']
    for row in metrics.read(str(tmp_path))
    if row['split'] == 'train'
  }
  shape = kept['trainer'].batch.weights_BxL.shape
  compiled = target.memory(programs.compile_train(*shape))
  assert step_bytes == compiled.total > 0
  assert programs.train_bytes(1, 5) is None  # it never ran
  assert programs.traces == traces


def test_the_printed_config_has_their_sections_and_is_read_again():
  parsed = config_lib.parse(raw_config())
  plain = config_lib.to_dict(parsed)
  for key, value in (KEYS | OWN).items():
    section, _, name = key.partition('.')
    assert plain[section][name] == value
  assert 'b1' not in plain['optimizer'] and 'buckets' not in plain['data']
  assert config_lib.parse(plain) == parsed


@pytest.mark.parametrize(('key', 'name', 'foreign', 'value'), FOREIGN)
def test_a_key_of_another_part_names_those_that_have_it(
  key, name, foreign, value
):
  default = config_lib.default()
  section, _, field = foreign.partition('.')
  assert field not in default[section]
  message = test_config.refusal({section: {field: value}})
  assert message.startswith(f'{foreign}={value!r}: {key}=')
  assert 'has no such key: leave it out, or choose one of [' in message
  assert repr(name) in message
  config_lib.override(default, {foreign: value, key: name})
  assert default[section][field] == value


def test_naming_another_part_keeps_the_keys_that_both_have():
  raw = config_lib.default(optimizer='adamw')
  raw.optimizer.b1 = 0.5
  raw.optimizer.learning_rate = 0.25
  raw.optimizer.moments = 'int8'
  raw.optimizer.name = 'sgd'
  assert 'moments' not in raw.optimizer and 'b2' not in raw.optimizer
  assert (raw.optimizer.b1, raw.optimizer.learning_rate) == (0.5, 0.25)
  raw.optimizer.nesterov = True
  assert config_lib.parse(raw).optimizer.nesterov
  with pytest.raises(AttributeError):
    raw.optimizer.eps = 1e-3
  raw.model.cell = 'gru'
  assert config_lib.parse(raw).cell.reset == 'after'


@pytest.mark.parametrize('kind', parts.KINDS, ids=lambda kind: kind.key)
@pytest.mark.parametrize(
  ('name', 'message'),
  (
    ('nowhere.mine', 'this module cannot be imported, ModuleNotFoundError'),
    ('rnn_jax.errors', r"errors.py lacks \['Config', "),
    ('nothing', r'choose one of \[.*, or name your own module'),
  ),
)
def test_a_module_that_isnt_a_part_is_one_clear_error(kind, name, message):
  section, key = kind.place
  found = test_config.refusal({section: {key: name}})
  assert '\n' not in found
  with pytest.raises(config_lib.parts.errors.InputError, match=message):
    config_lib.load(kind.folder, name, kind.key)


@pytest.fixture(name='resolved')
def _resolved(tmp_path, monkeypatch):
  """Returns what --config becomes with flags, or the message of a refusal."""
  file = tmp_path / 'mine.py'
  file.write_text(
    'from rnn_jax import config as config_lib\n\n\n'
    'def get_config():\n  return config_lib.default()\n'
  )

  def resolve(*given):
    argv = ['launch', f'--config={file}', *given]
    values = flags.FlagValues()
    monkeypatch.setattr(flags, 'FLAGS', values)
    monkeypatch.setattr(sys, 'argv', argv)
    command.define_config('A file.')
    try:
      values(argv)
    except flags.Error as error:
      return command._input_error(error)
    return values.config

  return resolve


def test_flags_name_parts_and_their_keys_in_any_order(resolved):
  found = resolved(
    '--config.optimizer.nesterov',
    '--config.optimizer.name=sgd',
    '--config.schedule.patience=3',
    '--config.schedule.name=plateau',
    '--config.data.path=x',
    '--config.data.source=text',
    '--config.optimizer.b1=0.5',
  )
  parsed = config_lib.parse(found)
  assert parsed.optimizer.nesterov and parsed.optimizer.b1 == 0.5
  assert parsed.schedule.patience == 3 and parsed.data.path == 'x'


def test_a_flag_of_another_part_is_refused_by_name(resolved):
  found = resolved('--config.optimizer.name=sgd', '--config.optimizer.eps=1')
  assert found.startswith("optimizer.eps='1': optimizer.name='sgd' has no such")
  found = resolved('--config.optimizer.name=sdg')
  assert found.startswith("optimizer.name='sdg': choose one of ['adabelief'")


def test_flags_name_cells_and_their_keys_in_any_order(resolved):
  found = resolved(
    '--config.cell.gla.rank=3', "--config.model.cells=('gla', 'attention')"
  )
  assert found.cell.gla.rank == 3
  assert config_lib.parse(found).model.pattern == ('gla', 'attention')
  assert resolved('--config.model.cells=gla,attention') == (
    "model.cells=gla,attention: give a tuple, as in \"('gla', 'attention')\""
  )
