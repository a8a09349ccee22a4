"""A run's folder: one config, one process, and nothing else overwritten."""

import json
import multiprocessing
import os

import pytest

import rnn_jax
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.runs import same_run
from rnn_jax.runs import workdir


def make_config(**changes):
  config = config_lib.to_dict(config_lib.parse(config_lib.default()))
  for key, value in changes.items():
    section, _, name = key.partition('__')
    config[section][name] = value
  return config


def content(folder):
  return {
    path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()
  }


@pytest.fixture
def folder(tmp_path):
  folder = tmp_path / 'runs' / 'demo'
  workdir.open_for_training(folder, make_config()).close()
  (folder / 'checkpoints' / '5').mkdir(parents=True)
  return folder


def test_a_run_without_a_checkpoint_takes_another_config(tmp_path):
  workdir.open_for_training(tmp_path, make_config()).close()
  (tmp_path / 'tokenizer.json').write_text('made for the first config')
  changed = make_config(model__layers=7)
  workdir.open_for_training(tmp_path, changed).close()
  assert workdir.load_config(tmp_path)['model']['layers'] == 7
  assert not (tmp_path / 'tokenizer.json').exists()


def test_the_first_run_writes_its_config(folder):
  config = workdir.load_config(folder)
  assert values.differences(config, make_config()) == []
  assert config_lib.parse(config) == config_lib.parse(config_lib.default())
  assert sorted(content(folder)) == ['.lock', 'config.json']


def test_the_same_config_resumes(folder):
  before = content(folder)
  config = make_config(data__splits=[90, 5, 5])  # a list for the tuple
  workdir.open_for_training(folder, config).close()
  assert content(folder) == before


def test_another_config_is_refused_with_each_difference(folder):
  before = content(folder)
  config = make_config(model__layers=7, data__splits=(80, 10, 10))
  with pytest.raises(errors.InputError) as caught:
    workdir.open_for_training(folder, config)
  for text in (str(folder), 'layers: 2 -> 7', '[90, 5, 5] -> [80, 10, 10]'):
    assert text in str(caught.value)
  assert content(folder) == before
  workdir.open_for_training(folder, make_config()).close()


FREE = {
  'data__workers': 3,
  'data__prefetch': 5,
  'optimizer__offload': True,
  'train__log_every': 7,
  'train__checkpoint_every': 11,
  'train__keep_checkpoints': 9,
  'sample__prompt': 'def ',
  'sample__top_k': 3,
}


@pytest.mark.parametrize('key', FREE)
def test_what_cannot_change_the_result_may_change(folder, key):
  config = make_config(**{key: FREE[key]})
  workdir.open_for_training(folder, config).close()
  assert values.differences(workdir.load_config(folder), config) == []
  assert sorted(content(folder)) == ['.lock', 'config.json']


def test_a_free_change_beside_a_fixed_one_is_not_kept(folder):
  before = content(folder)
  config = make_config(data__workers=3, train__seed=1)
  with pytest.raises(errors.InputError, match='train.seed: 0 -> 1') as caught:
    workdir.open_for_training(folder, config)
  assert 'workers' not in str(caught.value) and content(folder) == before


def test_free_keys_are_keys():
  default = config_lib.default(source='csv')  # the source with most keys
  config = config_lib.to_dict(config_lib.parse(default))
  for key in same_run.FREE:
    section, _, name = key.partition('.')
    assert name == '*' or name in config[section]


def test_a_folder_with_other_files_is_refused(tmp_path):
  (tmp_path / 'thesis.tex').write_text('...')
  with pytest.raises(errors.InputError, match='no config.json but thesis.tex'):
    workdir.open_for_training(tmp_path, make_config())
  assert sorted(content(tmp_path)) == ['thesis.tex']
  with pytest.raises(errors.InputError, match="not a run's folder"):
    workdir.load_config(tmp_path)


def test_a_log_may_exist_before_the_run(tmp_path):
  (tmp_path / workdir.LOG).write_text('starts')
  workdir.open_for_training(tmp_path, make_config()).close()
  assert content(tmp_path)[workdir.LOG] == b'starts'


def test_differences_that_make_another_run():
  changed = make_config(data__workers=3, model__layers=7, train__log_every=1)
  assert same_run.differences(make_config(), changed) == [
    'model.layers: 2 -> 7'
  ]


def test_a_key_of_a_later_version_had_its_default():
  old = make_config()
  del old['train']['quantized'], old['distillation'], old['cell']['heads']
  assert same_run.differences(old, make_config()) == []
  changed = make_config(train__quantized='int8')
  assert same_run.differences(old, changed) == ["train.quantized: '' -> 'int8'"]


def test_compressed_gradients_make_another_run():
  changed = make_config(mesh__data=4, mesh__compression='int8')
  assert same_run.differences(make_config(), changed) == [
    "mesh.compression: '' -> 'int8'"
  ]


def test_a_start_that_was_killed_while_writing_the_config(tmp_path):
  (tmp_path / workdir.TEMPORARY).write_text('{"da')
  (tmp_path / workdir.LOCK).touch()
  workdir.open_for_training(tmp_path, make_config()).close()
  assert sorted(content(tmp_path)) == ['.lock', 'config.json']


def test_a_path_that_cannot_be_a_folder(tmp_path):
  file = tmp_path / 'file'
  file.write_text('mine')
  for path, reason in ((file, 'it is a file'), (file / 'run', 'directory')):
    with pytest.raises(errors.InputError, match=reason) as caught:
      workdir.open_for_training(path, make_config())
    assert str(path) in str(caught.value)
  assert file.read_text() == 'mine'


@pytest.mark.parametrize('call', ('mkdir', 'replace'))
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, call):
  def fail(*_, **__):
    raise PermissionError(13, 'Permission denied')

  with monkeypatch.context() as patch:
    patch.setattr(f'pathlib.Path.{call}', fail)
    with pytest.raises(errors.InputError, match='Permission denied: give a'):
      workdir.open_for_training(tmp_path / 'run', make_config())
  workdir.open_for_training(tmp_path / 'run', make_config()).close()


@pytest.mark.parametrize('damage', (b'{"data": {', b'[1]', b'\xff\xfe', b''))
def test_a_damaged_config(folder, damage):
  (folder / 'config.json').write_bytes(damage)
  for call in (
    lambda: workdir.load_config(folder),
    lambda: workdir.open_for_training(folder, make_config()),
  ):
    with pytest.raises(errors.InputError, match='config.json is damaged'):
      call()
  assert (folder / 'config.json').read_bytes() == damage


def test_a_config_of_another_program(tmp_path):
  (tmp_path / 'config.json').write_text('{"model_type": "gpt2"}')
  with pytest.raises(errors.InputError, match='is of another program'):
    workdir.load_config(tmp_path)


@pytest.mark.parametrize('version', (None, '0.1.0', '9.0.0', 'new', 3))
def test_a_run_of_an_incompatible_version_is_refused(folder, version):
  file = folder / 'config.json'
  config = json.loads(file.read_text())
  assert config['version'] == rnn_jax.__version__
  assert 'version' not in workdir.load_config(folder)
  del config['version']
  if version is not None:
    config['version'] = version
  file.write_text(json.dumps(config))
  named = 'a version before 0.2.0' if version is None else version
  for call in (
    lambda: workdir.load_config(folder),
    lambda: workdir.open_for_training(folder, make_config()),
  ):
    with pytest.raises(errors.InputError) as caught:
      call()
    message = str(caught.value)
    assert f'is a run of rnn_jax {named}, and this is rnn_jax' in message
    assert rnn_jax.__version__ in message and '\n' not in message


def test_a_run_of_the_oldest_version_that_can_be_read_opens(folder):
  config = json.loads((folder / 'config.json').read_text())
  del config['train']['z_loss']  # a key that came later
  config['version'] = workdir.OLDEST
  (folder / 'config.json').write_text(json.dumps(config))
  workdir.open_for_training(folder, make_config()).close()


def test_no_folder(tmp_path):
  with pytest.raises(errors.InputError, match='no such folder: train first'):
    workdir.load_config(tmp_path / 'none')
  assert not os.listdir(tmp_path)


def train(folder, ready):
  with workdir.open_for_training(folder, make_config()):
    ready.send('ready')
    ready.recv()


def test_one_process_at_a_time(folder):
  here, there = multiprocessing.Pipe()
  process = multiprocessing.get_context('spawn').Process(
    target=train, args=(folder, there)
  )
  process.start()
  assert here.poll(60)
  with pytest.raises(errors.InputError, match='another process trains in it'):
    workdir.open_for_training(folder, make_config(data__workers=3))
  assert workdir.load_config(folder) == json.loads(json.dumps(make_config()))
  process.kill()
  process.join()
  workdir.open_for_training(folder, make_config()).close()


def test_one_run_at_a_time_saves_in_a_folder(tmp_path):
  config = make_config(train__checkpoint_dir=str(tmp_path / 'kept'))
  with workdir.open_for_training(tmp_path / 'first', config):
    with pytest.raises(
      errors.InputError, match='train.checkpoint_dir=.*another process'
    ):
      workdir.open_for_training(tmp_path / 'second', config)
  # One after the other is how a run moves to another machine.
  workdir.open_for_training(tmp_path / 'second', config).close()


def test_a_folder_of_checkpoints_that_cannot_be_made_is_named(tmp_path):
  (tmp_path / 'file').touch()
  config = make_config(train__checkpoint_dir=str(tmp_path / 'file' / 'kept'))
  with pytest.raises(errors.InputError, match='^train.checkpoint_dir='):
    workdir.open_for_training(tmp_path / 'run', config)


def test_two_runs_in_one_process(folder):
  with workdir.open_for_training(folder, make_config()):
    with pytest.raises(errors.InputError, match='another process'):
      workdir.open_for_training(folder, make_config())
  workdir.open_for_training(folder, make_config()).close()


def test_a_config_that_names_a_module_is_not_opened(folder):
  with workdir.open_for_training(folder, make_config()):
    pass
  path = folder / 'config.json'
  saved = json.loads(path.read_text())
  saved['optimizer']['name'] = 'theirs.payload'
  path.write_text(json.dumps(saved))
  with pytest.raises(errors.InputError, match='give --modules=theirs.payload'):
    workdir.load_config(folder)
  saved['optimizer']['name'] = 'tests.support.tiny'  # imported, if no optimizer
  path.write_text(json.dumps(saved))
  __import__('tests.support.tiny')
  assert workdir.load_config(folder)['optimizer']['name'].startswith('tests')


@pytest.mark.parametrize('name', ('lr[0.1]', 'a*', 'b?', 'c\\d'))
def test_folders_with_patterns_are_refused(name, tmp_path):
  with pytest.raises(errors.InputError, match='cannot be read: give another'):
    workdir.open_for_training(tmp_path / name, make_config())
  assert not (tmp_path / name).exists()
  with pytest.raises(errors.InputError, match='cannot be read: give another'):
    workdir.checkpoint_folder(tmp_path / name, '')
