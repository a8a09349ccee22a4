"""A folder with a GGUF file: its door, flags, and what is in the way."""

import dataclasses
import importlib.util
import json
import re

import gguf
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop.formats import gguf as gguf_format
from rnn_jax.interop.gguf import reader
from rnn_jax.runs import bundle as bundle_lib
from tests.interop.gguf import models
from tests.support import bundles
from tests.support import chats


@pytest.fixture(scope='module', name='bundle')
def _bundle():
  return models.make('mamba2', tokenizer_lib.Bytes())


@pytest.fixture(scope='module', name='folder')
def _folder(bundle, tmp_path_factory):
  folder = tmp_path_factory.mktemp('gguf') / 'out'
  models.write(bundle, folder, license='apache-2.0')
  return folder


def test_a_folder_has_a_file_and_a_card_equal_each_time(
  bundle, folder, tmp_path
):
  assert {x.name for x in folder.iterdir()} == {'model.gguf', 'README.md'}
  again = tmp_path / folder.name
  models.write(bundle, again, license='apache-2.0')
  for path in folder.iterdir():
    assert (again / path.name).read_bytes() == path.read_bytes()
  values = reader.read(folder / 'model.gguf').values
  assert values['general.license'] == 'apache-2.0'
  assert 'license: apache-2.0' in (folder / 'README.md').read_text()


def test_a_folder_with_one_file_is_read_as_the_file(folder, tmp_path):
  whole = models.read(folder)
  bundles.assert_same(whole, models.read(folder / 'model.gguf'))
  bundle_lib.write(whole, tmp_path / 'run')
  bundles.assert_same(bundle_lib.read(tmp_path / 'run', 'latest'), whole)
  (folder / 'other.gguf').write_bytes(b'')
  with pytest.raises(errors.InputError, match='it has 2 .gguf files'):
    models.read(folder)
  (folder / 'other.gguf').unlink()
  with pytest.raises(errors.InputError, match='it has 0 .gguf files'):
    models.read(tmp_path)


def test_a_config_and_a_tokenizer_are_taken_in_place_of_the_files(folder):
  raw = config_lib.default('mamba2')
  raw.data.length = 40
  given = models.read(
    folder,
    config=config_lib.parse(raw),
    tokenizer=tokenizer_lib.Numbers(257),
  )
  assert given.config.data.length == 40
  assert given.tokenizer.spec()['kind'] == 'numbers'
  with pytest.raises(errors.InputError, match='257 rows.*21 entries'):
    models.read(folder, tokenizer=tokenizer_lib.Numbers(21))


def test_flags_of_other_formats_and_other_places_are_refused(bundle, tmp_path):
  for options, named in (
    ({'batch_size': 2}, '--batch_size'),
    ({'opset': 27}, '--opset'),
    ({'dtype': 'int8'}, "--dtype='int8'.*q8_0"),
  ):
    with pytest.raises(errors.InputError, match=named):
      models.write(bundle, tmp_path / 'out', **options)
  with pytest.raises(errors.InputError, match='give a folder, for model.gguf'):
    models.write(bundle, tmp_path / 'model.gguf')
  config = dataclasses.replace(
    bundle.config, task=config_lib.section('task', name='tagging')
  )
  tagger = dataclasses.replace(bundle, config=config)
  with pytest.raises(errors.InputError, match='task.name.*write text'):
    models.write(tagger, tmp_path / 'out')
  assert not [*tmp_path.iterdir()]


def test_without_the_package_a_line_says_how_to_get_it(
  bundle, folder, tmp_path, monkeypatch
):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  remedy = re.escape("pip install 'rnn_jax[gguf]'")
  with pytest.raises(errors.InputError, match=remedy):
    models.write(bundle, tmp_path / 'out')
  with pytest.raises(errors.InputError, match=remedy):
    models.read(folder)


def changed(folder, tmp_path, **values):
  """The file with other values; None removes one."""
  source = reader.read(folder / 'model.gguf')
  path = tmp_path / 'changed.gguf'
  architecture = values.pop('architecture', 'mamba2')
  tensors = values.pop('tensors', {})
  writer = gguf.GGUFWriter(path, architecture)
  for key, value in (source.values | values).items():
    if value is None or key == 'general.architecture':
      continue
    if isinstance(value, str):
      writer.add_string(key, value)
    elif isinstance(value, bool):
      writer.add_bool(key, value)
    elif isinstance(value, int):
      writer.add_uint32(key, value)
    elif isinstance(value, float):
      writer.add_float32(key, value)
    else:
      items = value if isinstance(value, list) else value.tolist()
      writer.add_array(key, items)
  for name in source.tensors:
    x = tensors.get(name, source.read(name))
    if x is not None:
      writer.add_tensor(name, x)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


@pytest.mark.parametrize(
  ('values', 'says'),
  (
    ({'architecture': 'grok'}, "general.architecture='grok': only .*'mamba2'"),
    ({'mamba2.block_count': None}, 'mamba2.block_count=None'),
    ({'mamba2.block_count': 2**31}, 'mamba2.block_count=2147483648: give'),
    ({'mamba2.block_count': 9000}, 'num_hidden_layers=9000: give 4,096'),
    ({'mamba2.block_count': 'x'}, "mamba2.block_count='x'"),
    ({'mamba2.embedding_length': 0}, 'hidden_size=0: give 1'),
    ({'mamba2.ssm.inner_size': 100}, 'ssm.inner_size=100'),
    ({'mamba2.ssm.time_step_rank': 0}, 'ssm.inner_size=128'),
    ({'mamba2.ssm.state_size': 17}, 'blk.0.ssm_in.weight.*expected'),
    (
      {'mamba2.attention.layer_norm_rms_epsilon': float('nan')},
      'layer_norm_rms_epsilon=nan',
    ),
  ),
)
def test_a_wrong_value_is_named(values, says, folder, tmp_path):
  path = changed(folder, tmp_path, **values)
  with pytest.raises(errors.InputError, match=says):
    models.read(path)


def test_missing_and_impossible_tensors_are_named(folder, tmp_path):
  source = reader.read(folder / 'model.gguf')
  rate = -source.read('blk.1.ssm_a')
  for tensors, says in (
    ({'token_embd.weight': None}, 'it has no token_embd.weight'),
    ({'blk.1.ssm_d': None}, 'blk.1.ssm_d: missing, expected'),
    ({'blk.1.ssm_a': rate}, 'blk.1.ssm_a: its numbers must be below 0'),
    ({'blk.1.ssm_d': rate[:3]}, r'blk.1.ssm_d: \(3, 1\), expected \(8, 1\)'),
  ):
    path = changed(folder, tmp_path, tensors=tensors)
    with pytest.raises(errors.InputError, match=says):
      models.read(path)


def test_the_whole_folder_is_absent_after_an_error(
  bundle, tmp_path, monkeypatch
):
  def fail(*arguments):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(gguf_format.model_card, 'write', fail)
  with pytest.raises(errors.InputError, match='No space left'):
    models.write(bundle, tmp_path / 'out')
  assert not [*tmp_path.iterdir()]


def test_a_template_makes_the_task_dialogue(tmp_path):
  tokenizer = chats.make(chats.CHATML)
  bundle = models.make('mamba2', tokenizer)
  kept = {'tokenizer_config.json': json.dumps({'add_bos_token': False})}
  bundle = dataclasses.replace(bundle, kept=kept)
  back = models.read(models.write(bundle, tmp_path / 'out'))
  assert back.config.task.name == 'dialogue'
  assert back.tokenizer.template.text == chats.CHATML
