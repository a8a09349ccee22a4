"""Prepared datasets as documents."""

import json
import pickle

import PIL.Image
import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation import schema
from rnn_jax.data.preparation import writer
from rnn_jax.data.sources import tfds
from rnn_jax.data.tables import values

SPLITS = {'train': 6, 'validation': 2, 'test': 1}


def write(folder, splits, name='toy'):
  """Prepares a dataset with these numbers of examples by split."""
  inputs = []
  for split, count in splits.items():
    rows = [
      {'text': f'{split} {n} ü', 'turns': ['a', f'b{n}'], 'n': n}
      for n in range(count)
    ]
    path = folder / f'{name}-{split}.jsonl'
    path.write_text('\n'.join(map(json.dumps, rows)))
    inputs.append(f'{split}={path}')
  prepare.prepare(requests.Request(name, str(folder), tuple(inputs)))
  return folder


def load(folder, source='tfds:toy', **options):
  if 'image' in options:
    options['layout'] = 'images'
  data = config.section('data', source=source, data_dir=str(folder), **options)
  return tfds.load(data)


def test_every_example_is_a_document_of_its_split(tmp_path):
  splits = load(write(tmp_path, SPLITS))
  assert {name: len(split) for name, split in splits.items()} == SPLITS
  train = pickle.loads(pickle.dumps(splits['train']))
  read = sorted(train.read(n).decode() for n in range(6))
  assert read == [f'train {n} ü' for n in range(6)]
  assert train.names[2] == 'toy/train:2'
  assert train.read(0, 0, 5) == b'train'


def test_a_list_of_texts_is_one_text(tmp_path):
  splits = load(write(tmp_path, SPLITS), field='turns')
  assert splits['test'].read(0) == b'a\nb0'


def test_a_missing_validation_split_is_taken_from_training(tmp_path):
  write(tmp_path, {'train': 10, 'test': 3})
  splits = load(tmp_path, splits=(70, 30, 0))
  counts = {name: len(split) for name, split in splits.items()}
  assert counts == {'train': 7, 'validation': 3, 'test': 3}
  held_out = {*splits['validation'].names}
  assert not held_out & {*splits['train'].names}


@pytest.mark.parametrize(
  ('options', 'message'),
  (
    ({'source': 'tfds'}, "data.source='tfds': name the dataset"),
    ({'source': 'tfds:nothing'}, 'see launch.prepare --help'),
    (
      {'field': 'n'},
      r"data.field='n': .*toy that can be read are \['text', 'turns'\]",
    ),
  ),
)
def test_missing_things_are_named(tmp_path, options, message):
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
    requests.Request('toy', str(tmp_path), (f'train={path}',), label='label')
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


def test_columns_classes_and_ids_are_those_of_the_dataset(tmp_path):
  rows = [{'id': f'r{n}', 'body': f't{n}', 'y': 'pn'[n % 2]} for n in range(4)]
  path = tmp_path / 'rows.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  request = requests.Request(
    'toy', str(tmp_path), (f'train={path}',), label='y'
  )
  prepare.prepare(request)
  options = {'data_dir': str(tmp_path), 'splits': (75, 25, 0)}
  data = config.section('data', source='tfds:toy', **options)
  resolved = data.resolve(config.section('task', name='classification'))
  # `id` is text as well, and names the documents.
  assert (resolved.field, resolved.label) == ('body', 'y')
  assert resolved.classes == ('n', 'p')
  documents = pickle.loads(pickle.dumps(tfds.load(resolved)))
  read = {}
  for part in documents.values():
    labels = part.labels
    for n, name in enumerate(part.names):
      read[name] = part.read(n).decode(), resolved.classes[labels[n]]
  assert read == {row['id']: (row['body'], row['y']) for row in rows}


def test_an_image_of_another_size_is_named_at_the_start(tmp_path):
  for n in range(4):
    path = tmp_path / 'raw' / 'train' / 'ab'[n % 2] / f'{n}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    size = (8, 8) if n < 3 else (8, 9)
    PIL.Image.new('RGB', size, (n, 0, 0)).save(path)
  raw = str(tmp_path / 'raw')
  prepare.prepare(requests.Request('toy', str(tmp_path), (raw,)))
  image = config.Image(size=8)
  with pytest.raises(errors.InputError, match='toy/train:3: 8 x 9 pixels'):
    load(tmp_path, field='image', image=image)
  options = {'splits': (50, 50, 0), 'field': 'image'}
  resized = load(tmp_path, image=config.Image(size=8, resize=True), **options)
  assert {*resized['train'].sizes} == {8 * 8 * 3}


ROW = {'text': 'a', 'turns': ['a', 'b'], 'label': 0, 'n': 0.5}


def write_unchecked(folder, **splits):
  """Writes what programs other than launch.prepare may write."""
  columns = {
    'text': schema.Column(str),
    'turns': schema.Column(str, is_list=True),
    'label': schema.Column(int),
    'n': schema.Column(float),
  }
  made = schema.Schema(columns, 'label', ('n', 'p'), is_given=True)
  made.class_of = int  # unlabelled ones too
  counts = {split: len(rows) for split, rows in splits.items()}
  path = folder / 'toy' / '1.0.0'
  path.mkdir(parents=True)
  encode = writer.Encoder(made)
  layout = writer.Layout(str(path), 'toy', counts)
  written = writer.Writer(layout)
  for split, rows in splits.items():
    for row in rows:
      written.add(split, encode(values.Row('', ROW | row)))
  written.close()
  layout.write_metadata(made, written.sizes, '')


@pytest.mark.parametrize(
  ('row', 'options', 'message'),
  (
    ({'text': ' '}, {'classes': ('n', 'p')}, "'text' is empty: fill it"),
    ({'turns': []}, {'classes': ('n', 'p')}, "'turns' is empty"),
    ({'turns': ['a', '']}, {}, "'turns[1]' is empty"),
    (
      {'label': -1},
      {'classes': ('n', 'p')},
      "data.label='label' is missing",
    ),
    (
      {'n': float('nan')},
      {'difficulty': 'n'},
      "data.difficulty='n' is nan: give a number",
    ),
  ),
)
def test_rows_of_foreign_datasets_are_checked_at_the_start(
  tmp_path, row, options, message
):
  write_unchecked(tmp_path, train=[{}, {}], validation=[{}, row])
  field = 'turns' if 'turns' in row else 'text'
  with pytest.raises(errors.InputError) as caught:
    load(tmp_path, field=field, **options)
  assert str(caught.value).startswith(f'toy/validation:1: {message}')


def test_an_empty_text_among_others_is_skipped(tmp_path):
  write_unchecked(tmp_path, train=[{}, {'text': ''}, {}], validation=[{}])
  assert len(load(tmp_path)['train']) == 2


def test_a_test_split_without_labels_is_left_out(tmp_path):
  content = [{'label': 0}, {'label': 1}]
  write_unchecked(
    tmp_path, train=content, validation=content, test=[{'label': -1}] * 2
  )
  splits = load(tmp_path, classes=('n', 'p'))
  assert len(splits['validation']) == 2 and not len(splits['test'])
