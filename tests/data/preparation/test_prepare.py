"""Raw files to a dataset that plain TFDS reads."""

import dataclasses
import json
import os

import numpy as np
import pyarrow
import pytest
import tensorflow_datasets as tfds
from array_record.python import array_record_module
from matplotlib import axes
from pyarrow import parquet
from tensorflow_datasets.proto import tf_example_pb2

from rnn_jax import errors
from rnn_jax.data.preparation import lengths
from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation import writer


def rows(count, offset=0):
  return [
    {
      'text': f'review {n} ü' + n % 3 * ' !',
      'label': n % 2,
      'turns': ['a', f'b {n}'],
    }
    for n in range(offset, offset + count)
  ]


def jsonl(path, content):
  path.write_text('\n'.join(map(json.dumps, content)) + '\n')
  return str(path)


@pytest.fixture(name='request_')
def _request(tmp_path):
  """30 examples in one file, to be split 80 / 10 / 10."""
  path = jsonl(tmp_path / 'all.jsonl', rows(30))
  data_dir = str(tmp_path / 'data')
  return requests.Request('toy', data_dir, (path,), shares=(80, 10, 10))


def changed(request, **values):
  return dataclasses.replace(request, **values)


def refusal(request):
  with pytest.raises(errors.InputError) as caught:
    prepare.prepare(request)
  assert not os.path.exists(request.folder)
  return str(caught.value)


def read(request, split):
  builder = tfds.builder_from_directory(request.folder)
  return list(builder.as_data_source(split))


def test_plain_tfds_reads_every_example_of_every_split(request_):
  record, written = prepare.prepare(request_)
  assert written
  assert record['examples'] == {'train': 24, 'validation': 3, 'test': 3}
  examples = [e for split in record['examples'] for e in read(request_, split)]
  assert len(examples) == 30
  by_text = {example['text'].decode(): example for example in examples}
  for row in rows(30):
    example = by_text[row['text']]
    assert example['label'] == row['label']
    assert [turn.decode() for turn in example['turns']] == row['turns']
  info = tfds.builder_from_directory(request_.folder).info
  assert info.splits['train'].num_examples == 24
  assert info.features['label'].names == ['0', '1']
  assert record['asked']['inputs'][0]['sha256'] in info.description
  assert {'lengths.png', 'preparation.json'} <= {*os.listdir(request_.folder)}


def test_a_second_call_with_the_same_inputs_does_nothing(request_):
  first, _ = prepare.prepare(request_)
  when = os.stat(request_.folder).st_mtime_ns
  second, written = prepare.prepare(request_)
  assert (second, written) == (first, False)
  assert os.stat(request_.folder).st_mtime_ns == when


def test_a_file_is_identified_by_its_content_not_its_path(
  request_, tmp_path, monkeypatch
):
  prepare.prepare(request_)
  (tmp_path / 'all.jsonl').rename(tmp_path / 'moved.jsonl')
  monkeypatch.chdir(tmp_path)
  for changes in ({}, {'format': 'jsonl'}):
    moved = changed(request_, inputs=('moved.jsonl',), **changes)
    assert prepare.prepare(moved)[1] is False


def test_other_inputs_or_options_are_refused_and_named(request_, tmp_path):
  prepare.prepare(request_)
  with pytest.raises(errors.InputError, match=r'inputs or options \(seed\)'):
    prepare.prepare(changed(request_, seed=1))
  jsonl(tmp_path / 'all.jsonl', rows(29))
  with pytest.raises(errors.InputError, match=r'\(inputs\): remove it'):
    prepare.prepare(request_)


def test_the_seed_decides_the_split_and_copies_stay_together(
  request_, tmp_path
):
  twice = jsonl(tmp_path / 'twice.jsonl', rows(30) + rows(30))
  texts = []
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    request = changed(request_, name=name, seed=seed, inputs=(twice,))
    record, _ = prepare.prepare(request)
    pairs = [(d['first'], d['second']) for d in record['duplicates']]
    assert pairs == [(split, split) for split in record['examples']]
    texts.append([e['text'] for e in read(request, 'train')])
  assert texts[0] == texts[1] != texts[2]


def test_given_splits_and_their_overlap(tmp_path):
  folder = tmp_path / 'raw'
  folder.mkdir()
  jsonl(folder / 'train_1k.jsonl', rows(10))
  jsonl(folder / 'validation.jsonl', rows(4, offset=8))
  request = requests.Request('toy', str(tmp_path / 'data'), (str(folder),))
  refused = refusal(changed(request, duplicates='refuse'))
  assert refused.startswith(
    '--duplicates=refuse: 2 example(s) of train are in validation too, '
    f'such as {folder}/train_1k.jsonl:9 and {folder}/validation.jsonl:1'
  )
  record, _ = prepare.prepare(request)
  assert record['examples'] == {'train': 10, 'validation': 4}
  assert record['duplicates'][0]['contents'] == 2
  assert 'already have splits' in refusal(
    changed(request, name='other', shares=(80, 10, 10))
  )


@pytest.mark.parametrize(
  ('row', 'message'),
  (
    ({'text': ' ', 'label': 0, 'turns': ['a']}, ":4: 'text' is empty"),
    ({'text': 'a', 'label': 5, 'turns': ['a']}, ":4: label=5 isn't one of the"),
    (
      {'text': 'a', 'label': None, 'turns': ['a']},
      ":4: label=None isn't a class",
    ),
    (
      {'text': 'a', 'label': 0, 'turns': ['a', 7]},
      ':4: turns[1] is int 7, and',
    ),
    ({'text': 'a', 'label': 0, 'turns': []}, ":4: 'turns' is empty: fill it"),
    ({'text': 'a', 'label': 0}, ":4: columns ['text', 'label'], where the"),
    ({'text': 3, 'label': 0, 'turns': ['a']}, ':4: text is int 3, and str in'),
    (
      {'text': '\ud83d', 'label': 0, 'turns': ['a']},
      ":4: 'text' has an unpaired",
    ),
  ),
)
def test_a_bad_example_is_named_by_file_line_and_column(
  row, message, request_, tmp_path
):
  path = jsonl(tmp_path / 'bad.jsonl', [*rows(3), row])
  request = changed(request_, inputs=(path,), classes=('bad', 'good'))
  assert refusal(request).startswith(path + message)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'shares': ()}, '--splits is missing'),
    ({'name': 'My set'}, "--name='My set': give lowercase letters"),
    ({'format': 'xls'}, "--format='xls': choose one of ['cifar10', 'csv'"),
    ({'inputs': ()}, '--input is missing'),
    ({'inputs': ('nowhere/*.csv',)}, "--input='nowhere/*.csv': no such file"),
    ({'inputs': ('tests=a.csv',)}, "the split 'tests' isn't one of"),
    ({'label': 'class'}, "--label='class'"),
    ({'label': 'text', 'classes': ('a', 'b')}, "isn't one of the classes"),
    ({'label': '', 'classes': ('a', 'b')}, 'no column of classes'),
  ),
)
def test_bad_requests_are_refused_by_name(changes, message, request_):
  assert message in refusal(changed(request_, **changes))


def test_a_path_may_contain_an_equals_sign(request_, tmp_path):
  folder = tmp_path / 'part=1'
  folder.mkdir()
  path = jsonl(folder / 'a.jsonl', rows(20))
  prepare.prepare(changed(request_, inputs=(path,)))
  request = changed(
    request_, name='given', inputs=(f'train={path}',), shares=()
  )
  record, _ = prepare.prepare(request)
  assert record['examples'] == {'train': 20}


def test_a_split_that_would_be_empty_is_refused(request_, tmp_path):
  path = jsonl(tmp_path / 'ten.jsonl', rows(10))
  request = changed(request_, inputs=(path,), shares=(85, 10, 5))
  assert refusal(request).startswith('--splits: nothing is left for test')
  record, _ = prepare.prepare(changed(request, shares=(90, 10, 0)))
  assert record['examples'] == {'train': 9, 'validation': 1}


def test_a_single_split_can_be_divided(request_, tmp_path):
  path = jsonl(tmp_path / 'train.jsonl', rows(20))
  request = changed(request_, inputs=(f'train={path}',), shares=(80, 10, 10))
  record, _ = prepare.prepare(request)
  assert record['examples'] == {'train': 16, 'validation': 2, 'test': 2}


def test_parquet_in_a_folder_for_each_split(tmp_path):
  for split, texts in (('train', ['a', 'b']), ('test', ['c'])):
    folder = tmp_path / 'raw' / 'default' / split
    folder.mkdir(parents=True)
    table = pyarrow.table({'text': texts})
    parquet.write_table(table, folder / '0000.parquet')
  raw = str(tmp_path / 'raw')
  record, _ = prepare.prepare(requests.Request('toy', str(tmp_path), (raw,)))
  assert record['examples'] == {'train': 2, 'test': 1}


@pytest.mark.parametrize('names', ('123', '321'))
def test_classes_whose_names_are_numbers_are_matched_by_name(tmp_path, names):
  path = tmp_path / 'a.csv'
  lines = [f'{name * 4},{name}' for name in '123']
  path.write_text('\n'.join(['text,label', *lines]))
  request = requests.Request(
    'toy', str(tmp_path), (f'train={path}',), classes=tuple(names)
  )
  prepare.prepare(request)
  for example in read(request, 'train'):
    assert example['text'].decode() == names[example['label']] * 4


def test_a_single_class_is_refused(request_, tmp_path):
  path = jsonl(tmp_path / 'one.jsonl', rows(30)[::2])
  refused = refusal(changed(request_, inputs=(path,)))
  assert "all examples are of one class, '0'" in refused


def test_empty_examples_are_skipped_on_request(request_, tmp_path):
  empty = {'text': '', 'label': 0, 'turns': ['a']}
  turn = {'text': 'a', 'label': 0, 'turns': ['a', ' ']}
  none = {'text': 'a', 'label': 0, 'turns': []}
  content = [empty, *rows(10), turn, none, empty]
  path = jsonl(tmp_path / 'some.jsonl', content)
  request = changed(request_, inputs=(path,), skip_empty=True)
  record, _ = prepare.prepare(request)
  assert sum(record['examples'].values()) == 10


def test_an_empty_column_skips_no_example(request_, tmp_path):
  content = [{'body': f'b{n}', 'note': '', 'label': n % 2} for n in range(12)]
  path = jsonl(tmp_path / 'a.jsonl', [*content, {**content[0], 'body': ' '}])
  request = changed(request_, inputs=(path,), skip_empty=True)
  record, _ = prepare.prepare(request)
  assert sum(record['examples'].values()) == 12
  assert record['skipped'] == {'empty text': 1}
  with pytest.raises(errors.InputError, match="'body' is empty: fill it, skip"):
    prepare.prepare(changed(request, name='other', skip_empty=False))


def test_only_the_column_of_the_text_must_not_be_empty(request_, tmp_path):
  notes = 'x', '', 'y'
  content = [
    {'body': f'b{n}', 'note': notes[n % 3], 'label': n % 2} for n in range(12)
  ]
  path = jsonl(tmp_path / 'a.jsonl', content)
  request = changed(request_, inputs=(path,))
  with pytest.raises(errors.InputError, match=":2: 'note' is empty: .* --text"):
    prepare.prepare(request)
  record, _ = prepare.prepare(changed(request, text='body'))
  assert sum(record['examples'].values()) == 12
  with pytest.raises(errors.InputError, match="--text='x': .* has the columns"):
    prepare.prepare(changed(request, name='other', text='x'))


def test_examples_without_a_class_are_skipped_on_request(request_, tmp_path):
  content = [*rows(10), {'text': 'a', 'label': None, 'turns': ['b']}]
  path = jsonl(tmp_path / 'a.jsonl', content)
  request = changed(request_, inputs=(path,))
  with pytest.raises(
    errors.InputError, match=':11: label=None .*missing_label'
  ):
    prepare.prepare(request)
  record, _ = prepare.prepare(changed(request, missing_labels='skip'))
  assert sum(record['examples'].values()) == 10
  assert record['skipped'] == {'no label': 1}


def test_a_test_split_may_hide_its_classes(request_, tmp_path):
  train = jsonl(tmp_path / 'a.jsonl', rows(10))
  hidden = [
    {**row, 'text': f't{n}', 'label': None} for n, row in enumerate(rows(3))
  ]
  test = jsonl(tmp_path / 'b.jsonl', hidden)
  inputs = f'train={train}', f'test={test}'
  record, _ = prepare.prepare(changed(request_, inputs=inputs, shares=()))
  assert record['examples'] == {'train': 10, 'test': 3}
  labels = [row['label'] for row in read(request_, 'test')]
  assert [*map(int, labels)] == [-1, -1, -1]


def test_a_failure_half_way_leaves_nothing(request_, monkeypatch):
  add, calls = writer.Writer.add, []

  def failing(self, *arguments):
    calls.append(arguments)
    if len(calls) == 20:
      raise OSError(28, 'No space left on device')
    add(self, *arguments)

  monkeypatch.setattr(writer.Writer, 'add', failing)
  with pytest.raises(OSError, match='No space left'):
    prepare.prepare(request_)
  assert not os.path.exists(os.path.dirname(request_.folder))
  monkeypatch.undo()
  assert prepare.prepare(request_)[1]


def test_shards_have_at_most_the_given_number_of_examples(
  request_, monkeypatch
):
  monkeypatch.setattr(writer, 'SHARD', 10)
  prepare.prepare(request_)
  shards = [name for name in os.listdir(request_.folder) if '-train.' in name]
  assert sorted(shards) == [
    f'toy-train.array_record-{n:05}-of-00003' for n in range(3)
  ]
  texts = {example['text'] for example in read(request_, 'train')}
  assert len(texts) == 24


def test_foreign_folders_and_other_versions_are_refused(request_):
  prepare.prepare(request_)
  path = os.path.join(request_.folder, 'preparation.json')
  with open(path, encoding='utf-8') as file:
    record = json.load(file)
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(record | {'layout': 0}, file)
  with pytest.raises(errors.InputError, match='another version of rnn_jax'):
    prepare.prepare(request_)
  os.remove(path)
  with pytest.raises(errors.InputError, match='not written by launch.prepare'):
    prepare.prepare(request_)


def test_numbers_survive(tmp_path):
  content = [{'n': n, 'x': n / 2, 'flags': [True, False]} for n in range(1, 9)]
  path = jsonl(tmp_path / 'a.jsonl', content)
  request = requests.Request('numbers', str(tmp_path), (f'train={path}',))
  prepare.prepare(request)
  examples = read(request, 'train')
  assert [int(e['n']) for e in examples] == [*range(1, 9)]
  assert [float(e['x']) for e in examples] == [n / 2 for n in range(1, 9)]
  np.testing.assert_array_equal(examples[0]['flags'], [True, False])


def test_records_are_the_same_in_every_process(tmp_path):
  path = jsonl(tmp_path / 'a.jsonl', [dict.fromkeys('hgfedcba', 1)])
  request = requests.Request('toy', str(tmp_path), (f'train={path}',))
  prepare.prepare(request)
  shard = f'{request.folder}/toy-train.array_record-00000-of-00001'
  (record,) = array_record_module.ArrayRecordReader(shard).read_all()
  # By default, a process draws the order of the columns.
  example = tf_example_pb2.Example.FromString(record)
  assert record == example.SerializeToString(deterministic=True)


def test_integers_become_floats_once_a_float_occurs(tmp_path):
  content = [{'x': 1, 'y': [1, 2]}, {'x': 0.5, 'y': [3, 0.25]}]
  path = jsonl(tmp_path / 'a.jsonl', content)
  request = requests.Request('numbers', str(tmp_path), (f'train={path}',))
  prepare.prepare(request)
  examples = read(request, 'train')
  assert [float(e['x']) for e in examples] == [1, 0.5]
  assert [[*map(float, e['y'])] for e in examples] == [[1, 2], [3, 0.25]]


@pytest.mark.parametrize('number', (2**63, -(2**70)))
@pytest.mark.parametrize('first', (1, 0.5))
def test_numbers_beyond_64_bits_are_refused(tmp_path, number, first):
  path = jsonl(tmp_path / 'a.jsonl', [{'n': first}, {'n': number}])
  request = requests.Request('numbers', str(tmp_path), (f'train={path}',))
  assert refusal(request).startswith(f'{path}:2: n={number} is outside')


def test_columns_of_csv_whose_every_value_is_a_number(tmp_path):
  path = tmp_path / 'train.csv'
  path.write_text(
    'text,label,whole,part,code,far,some\n'
    '1,0,3,0.5,007,12345678901234567890,1\n'
    '2,1,-4,1,008,12345678901234567891,x\n'
  )
  request = requests.Request('toy', str(tmp_path), (f'train={path}',))
  record, _ = prepare.prepare(request)
  examples = read(request, 'train')
  assert [int(e['whole']) for e in examples] == [3, -4]
  assert [float(e['part']) for e in examples] == [0.5, 1]
  assert isinstance(examples[0]['whole'], int | np.integer)
  assert [examples[1][name] for name in ('text', 'code', 'far', 'some')] == [
    b'2',
    b'008',
    b'12345678901234567891',
    b'x',
  ]
  assert examples[1]['label'] == 1 and record['classes'] == ['0', '1']
  assert record['lengths'] == {}  # each text is one word


def test_the_bars_of_a_split_add_up_to_one(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(
    axes.Axes,
    'hist',
    lambda self, x, bins, **options: drawn.append(
      np.histogram(
        x, bins, weights=options['weights'], density=options.get('density')
      )[0]
    ),
  )
  counts = {'train': {'a': [1, 1, 40, 90]}, 'test': {'a': [5, 60]}}
  monkeypatch.setattr(axes.Axes, 'legend', lambda self: None)
  lengths.draw(counts, str(tmp_path / 'a.png'))
  assert [bars.sum() for bars in drawn] == [pytest.approx(1)] * 2


def test_an_unreadable_image_is_named(tmp_path):
  for name, content in (('cat/1.png', b'nothing'), ('dog/2.png', b'')):
    path = tmp_path / 'raw' / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
  inputs = (str(tmp_path / 'raw'),)
  assert refusal(requests.Request('pets', str(tmp_path), inputs)) == (
    f'{inputs[0]}: cat/1.png: image: cannot be read as an image (unknown '
    'format): repair or remove it'
  )
