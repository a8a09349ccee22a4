"""The dataset on disk that a name means, and errors for damaged ones."""

import json
import os

import numpy as np
import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import prepared
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation.formats import cifar10
from rnn_jax.data.sources import tfds
from tests.data.sources import test_tfds
from tests.support import files


def move(folder, old, new):
  (folder / new).parent.mkdir(parents=True, exist_ok=True)
  (folder / old).rename(folder / new)


def name_of(folder, name):
  builder = prepared.open_dataset(name, str(folder))
  return os.path.relpath(builder.data_dir, folder)


def test_a_name_that_tfds_knows_means_the_dataset_on_disk(tmp_path):
  rng = np.random.default_rng(0)
  pixels = rng.integers(256, size=(6, 3072)).astype(np.uint8)
  batch = {b'data': pixels, b'labels': [3, 0, 9, 3, 0, 9]}
  path = tmp_path / 'cifar-10-python.tar.gz'
  files.cifar10(path, batch)
  prepare.prepare(requests.Request('cifar10', str(tmp_path), (str(path),)))
  splits = test_tfds.load(
    tmp_path,
    'tfds:cifar10',
    field='image',
    classes=cifar10.CLASSES,
    splits=(50, 50, 0),
    image=config.Image(size=32),
  )
  counts = {name: len(split) for name, split in splits.items()}
  assert counts == {'train': 3, 'validation': 3, 'test': 6}
  read = np.frombuffer(splits['test'].read(1), np.uint8).reshape(32, 32, 3)
  wanted = pixels[1].reshape(3, 32, 32).transpose(1, 2, 0)
  np.testing.assert_array_equal(read, wanted)


def test_tfds_own_layout_has_configs(tmp_path):
  test_tfds.write(tmp_path, test_tfds.SPLITS, 'imdb_reviews')
  plain = 'imdb_reviews/plain_text/1.0.0'
  move(tmp_path, 'imdb_reviews/1.0.0', plain)
  for name in ('imdb_reviews', 'imdb_reviews/plain_text', 'imdb_reviews:1.0.0'):
    assert name_of(tmp_path, name) == plain
  assert len(test_tfds.load(tmp_path, 'tfds:imdb_reviews')['train']) == 6
  test_tfds.write(tmp_path, test_tfds.SPLITS, 'other')
  move(tmp_path, 'other/1.0.0', 'imdb_reviews/bytes/1.0.0')
  with pytest.raises(
    errors.InputError, match=r"configs \['bytes', 'plain_text'\]: name one"
  ):
    name_of(tmp_path, 'imdb_reviews')


def test_the_newest_version_is_taken_unless_one_is_named(tmp_path):
  test_tfds.write(tmp_path, test_tfds.SPLITS)
  move(tmp_path, 'toy/1.0.0', 'toy/9.0.0')
  test_tfds.write(tmp_path, test_tfds.SPLITS)
  move(tmp_path, 'toy/1.0.0', 'toy/10.0.0')
  assert name_of(tmp_path, 'toy') == 'toy/10.0.0'
  assert name_of(tmp_path, 'toy:9.0.0') == 'toy/9.0.0'
  with pytest.raises(errors.InputError, match='see launch.prepare --help'):
    name_of(tmp_path, 'toy:1.0.0')


def refusal(folder):
  with pytest.raises(errors.InputError) as caught:
    tfds.load(config.section('data', source='tfds:toy', data_dir=str(folder)))
  return str(caught.value)


@pytest.fixture(name='toy')
def _toy(tmp_path):
  test_tfds.write(tmp_path, test_tfds.SPLITS)
  return tmp_path / 'toy' / '1.0.0'


def test_another_layout_is_refused_in_training_too(toy, tmp_path):
  record = toy / 'preparation.json'
  record.write_text(json.dumps(json.loads(record.read_text()) | {'layout': 0}))
  assert 'another version of rnn_jax (layout 0' in refusal(tmp_path)


@pytest.mark.parametrize('keep', (0, 100, 40_000))
def test_a_truncated_shard_is_named(toy, tmp_path, keep):
  shard = next(toy.glob('*-train.*'))
  shard.write_bytes(shard.read_bytes()[:keep])
  message = refusal(tmp_path)
  assert message.startswith(f'{shard}: cut off or damaged (')
  assert f'or remove {toy} and prepare it again' in message


def test_a_missing_file_is_named(toy, tmp_path):
  shard = next(toy.glob('*-train.*'))
  content = shard.read_bytes()
  shard.unlink()
  assert refusal(tmp_path).startswith(f'{shard} is missing: copy it again')
  shard.write_bytes(content)
  (toy / 'features.json').unlink()
  assert refusal(tmp_path).startswith(f'{toy}: incomplete dataset')


@pytest.mark.parametrize('form', ('new', 'nested', 'old'))
def test_a_class_of_a_stranger_is_not_imported(tmp_path, monkeypatch, form):
  monkeypatch.syspath_prepend(tmp_path)
  ran = tmp_path / 'ran'
  (tmp_path / 'payload.py').write_text(f'open({str(ran)!r}, "w").close()\n')
  test_tfds.write(tmp_path, test_tfds.SPLITS)
  path = tmp_path / 'toy/1.0.0/features.json'
  features = json.loads(path.read_text())
  if form == 'new':
    features['pythonClassName'] = 'payload.X'
  elif form == 'nested':
    fields = features['featuresDict']['features']
    fields['text']['pythonClassName'] = 'payload.X'
  else:
    features = {'type': 'payload.X', 'content': {}}
  path.write_text(json.dumps(features))
  with pytest.raises(errors.InputError, match="'payload.X' is not one of TFDS"):
    name_of(tmp_path, 'toy')
  assert not ran.exists()


def test_features_that_are_no_json_are_named(tmp_path):
  test_tfds.write(tmp_path, test_tfds.SPLITS)
  path = tmp_path / 'toy/1.0.0/features.json'
  path.write_text('[' * 100_000)
  with pytest.raises(errors.InputError, match=r'features.json is damaged'):
    name_of(tmp_path, 'toy')
