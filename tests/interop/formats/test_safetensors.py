"""A model in one .safetensors file."""

import json

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.interop.formats import safetensors
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import tiny


@pytest.fixture(name='bundle')
def _bundle():
  return bundles.make(tiny.raw_config('text'))


def write(bundle, path):
  safetensors.write(bundle, request.Target(path))
  return path


def test_a_bundle_survives_a_round_trip(bundle, tmp_path):
  path = write(bundle, tmp_path / 'model.safetensors')
  bundles.assert_same(safetensors.read(request.Source(path)), bundle)
  assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_classifier_survives_a_round_trip(tmp_path):
  raw = tiny.raw_config('text')
  raw.task.name = 'classification'
  raw.data.classes = ('a', 'b')
  bundle = bundles.make(raw)
  path = write(bundle, tmp_path / 'model.safetensors')
  bundles.assert_same(safetensors.read(request.Source(path)), bundle)


def test_names_are_paths(bundle, tmp_path):
  result = tensors.read(write(bundle, tmp_path / 'model.safetensors'))
  assert result['stack.blocks.cell.output.kernel'].shape == (2, 8, 16)
  assert bundle_lib.flat(bundle.params).keys() == result.keys()


def test_a_file_of_another_format_is_refused(bundle, tmp_path):
  path = tmp_path / 'model.safetensors'
  tensors.write(path, {'a': np.zeros(2, np.float32)})
  with pytest.raises(errors.InputError, match='not written by launch.export'):
    safetensors.read(request.Source(path))
  path.write_bytes(b'strange')
  with pytest.raises(errors.InputError, match='t a valid .safetensors file'):
    safetensors.read(request.Source(path))
  with pytest.raises(errors.InputError, match='end it in .safetensors'):
    write(bundle, tmp_path / 'model.pt')


def test_changed_tensors_and_metadata_are_named(bundle, tmp_path):
  path = write(bundle, tmp_path / 'model.safetensors')
  metadata = tensors.read_metadata(path)
  result = tensors.read(path)
  result['head.bias'] = np.zeros(7, np.float32)
  tensors.write(path, result, metadata)
  with pytest.raises(
    errors.InputError, match=r'head.bias: \(7,\), expected \(21,\)'
  ):
    safetensors.read(request.Source(path))
  config = json.loads(metadata['config'])
  config['model']['strange'] = 3
  changed = metadata | {'config': json.dumps(config)}
  tensors.write(path, result, changed)
  with pytest.raises(errors.InputError, match='unknown config key model.stran'):
    safetensors.read(request.Source(path))
  tensors.write(path, result, metadata | {'tokenizer': '{"kind": "none"}'})
  with pytest.raises(errors.InputError, match='metadata is damaged'):
    safetensors.read(request.Source(path))


def test_flags_cannot_override_the_file(bundle, tmp_path):
  path = write(bundle, tmp_path / 'model.safetensors')
  with pytest.raises(errors.InputError, match='--config is given'):
    safetensors.read(request.Source(path, config=bundle.config))
  with pytest.raises(errors.InputError, match='--batch_size is given'):
    safetensors.write(bundle, request.Target(path, batch_size=2))
