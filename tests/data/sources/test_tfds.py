"""Prepared datasets as documents."""

import json
import pickle

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.preparation import prepare
from rnn_jax.data.sources import tfds

SPLITS = {'train': 6, 'validation': 2, 'test': 1}


def write(folder, splits, name='toy'):
  """Prepares a dataset with so many examples a split."""
  inputs = []
  for split, count in splits.items():
    rows = [
      {'text': f'{split} {n} ü', 'turns': ['a', f'b{n}'], 'n': n}
      for n in range(count)
    ]
    path = folder / f'{name}-{split}.jsonl'
    path.write_text('\n'.join(map(json.dumps, rows)))
    inputs.append(f'{split}={path}')
  prepare.prepare(prepare.Request(name, str(folder), tuple(inputs)))
  return folder


def load(folder, source='tfds:toy', **options):
  data = config.Data(source=source, data_dir=str(folder), **options)
  return tfds.load(data)


def test_every_example_is_a_document_of_its_own_split(tmp_path):
  found = load(write(tmp_path, SPLITS))
  assert {name: len(split) for name, split in found.items()} == SPLITS
  train = pickle.loads(pickle.dumps(found['train']))
  read = sorted(train.read(n).decode() for n in range(6))
  assert read == [f'train {n} ü' for n in range(6)]
  assert train.names[2] == 'toy/train:2'
  assert train.read(0, 0, 5) == b'train'


def test_a_list_of_texts_is_one_text(tmp_path):
  found = load(write(tmp_path, SPLITS), field='turns')
  assert found['test'].read(0) == b'a\nb0'


def test_without_a_validation_split_training_gives_its_share(tmp_path):
  write(tmp_path, {'train': 10, 'test': 3})
  found = load(tmp_path, splits=(70, 30, 0))
  counts = {name: len(split) for name, split in found.items()}
  assert counts == {'train': 7, 'validation': 3, 'test': 3}
  held_out = {*found['validation'].names}
  assert not held_out & {*found['train'].names}


@pytest.mark.parametrize(
  ('options', 'message'),
  (
    ({'source': 'tfds'}, "data.source='tfds': name the dataset"),
    ({'source': 'tfds:nothing'}, 'see launch.prepare --help'),
    (
      {'field': 'n'},
      r"data.field='n': tfds:toy has text in \['text', 'turns'\]",
    ),
  ),
)
def test_what_is_not_there_is_named(tmp_path, options, message):
  write(tmp_path, SPLITS)
  with pytest.raises(errors.InputError, match=message):
    load(tmp_path, **options)


def test_a_dataset_without_a_training_split_is_refused(tmp_path):
  write(tmp_path, {'test': 3})
  with pytest.raises(errors.InputError, match='one must be train'):
    load(tmp_path)


def test_classes_are_those_of_the_dataset(tmp_path):
  rows = [{'text': f't{n}', 'label': 'pn'[n % 2]} for n in range(4)]
  path = tmp_path / 'rows.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  prepare.prepare(
    prepare.Request('toy', str(tmp_path), (f'train={path}',), label='label')
  )
  options = {'splits': (100, 0, 0), 'classes': ('n', 'p')}
  train = load(tmp_path, **options)['train']
  for n in range(4):
    label = 'np'[train.labels[n]]
    assert label == 'pn'[int(train.read(n)[1:]) % 2]
  with pytest.raises(errors.InputError, match=r"are \('n', 'p'\): give those"):
    load(tmp_path, **options | {'classes': ('p', 'n')})
  with pytest.raises(errors.InputError, match="data.label='x': tfds:toy has"):
    load(tmp_path, **options | {'label': 'x'})
