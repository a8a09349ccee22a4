"""Each format reads what its own files look like, and names what is wrong."""

import io
import json
import pickle
import tarfile
import zipfile

import numpy as np
import PIL.Image
import pyarrow
import pytest
from pyarrow import parquet

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs


def read(name, path, **options):
  module = inputs.load_format(name)
  return list(module.read(str(path), examples.Options(**options)))


def values(name, path, **options):
  return [example.values for example in read(name, path, **options)]


def refusal(name, path, **options):
  with pytest.raises(errors.InputError) as caught:
    read(name, path, **options)
  return str(caught.value)


def picture(color, kind='PNG'):
  file = io.BytesIO()
  PIL.Image.new('RGB', (3, 2), color).save(file, kind)
  return file.getvalue()


def test_jsonl(tmp_path):
  rows = {'text': 'ü', 'label': 1}, {'text': 'b', 'label': 0}
  path = tmp_path / 'a.jsonl'
  path.write_text('\n\n'.join(map(json.dumps, rows)) + '\r\n')
  found = read('jsonl', path)
  assert [example.values for example in found] == [*rows]
  assert [example.where for example in found] == [f'{path}:1', f'{path}:3']
  path.write_text('{"text": 1}\n[1]\n')
  assert (
    refusal('jsonl', path) == f'{path}:2: a row must be an object, not list'
  )
  path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\n')
  assert values('jsonl', path) == [{'text': 'a'}]
  path.write_text('{"text": "\\ud83d\\ude00"}\n{"turns": ["a", "\\ud83d"]}\n')
  assert refusal('jsonl', path) == (
    f"{path}:2: 'turns' holds half a surrogate pair: mend it"
  )
  path.write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
  assert refusal('jsonl', path).startswith(f'{path}:2: byte 10 is not utf-8')


def test_csv_and_tsv(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_bytes(b'\xef\xbb\xbftext,label\r\n"a, ""b""\nc",1\r\nd,0\r\n')
  found = read('csv', path)
  assert found[0].values == {'text': 'a, "b"\nc', 'label': '1'}
  assert found[1].where == f'{path}:4'
  (tmp_path / 'a.tsv').write_text('text\tlabel\na, b\t1\n')
  assert values('csv', tmp_path / 'a.tsv') == [{'text': 'a, b', 'label': '1'}]
  path.write_text('text,label\na,b,c\n')
  message = f'{path}:2: 3 columns, and the header has 2'
  assert refusal('csv', path).startswith(message)
  path.write_text('text,text\na,b\n')
  assert 'the first line must name each column once' in refusal('csv', path)


def test_quotes_among_tabs_are_characters(tmp_path):
  path = tmp_path / 'A.TSV'
  path.write_text('text\tlabel\n"it is\t1\na "third"\t0\nfourth"\t1\n')
  assert values('csv', path) == [
    {'text': '"it is', 'label': '1'},
    {'text': 'a "third"', 'label': '0'},
    {'text': 'fourth"', 'label': '1'},
  ]
  path.write_text('text\tlabel\na\tb\t1\n')
  assert refusal('csv', path).endswith('a tab ends a value')


def test_a_value_of_csv_may_be_long(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text(f'text,label\n{"x" * 200_000},1\n')
  assert len(values('csv', path)[0]['text']) == 200_000


@pytest.mark.parametrize('encoding', ('utf-16', 'utf-16-le', 'utf-32', 'cp037'))
def test_lines_of_encodings_unlike_ascii(tmp_path, encoding):
  path = tmp_path / 'a.txt'
  path.write_bytes('one\r\n\nz ü\n'.encode(encoding))
  found = read('text', path, encoding=encoding)
  assert [example.values['text'] for example in found] == ['one', 'z ü']
  assert found[1].where == f'{path}:3'


def test_text_by_lines_and_files(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('one\n\ntwo\n')
  assert values('text', path) == [{'text': 'one'}, {'text': 'two'}]
  assert values('text', path, document='file') == [{'text': 'one\n\ntwo\n'}]
  path.write_bytes(b'caf\xe9\n')
  assert values('text', path, encoding='cp1252') == [{'text': 'café'}]
  message = "--encoding='utf-9': no such encoding: 'utf-8' is the usual one"
  assert refusal('text', path, encoding='utf-9') == message


def test_the_original_rt_polarity(tmp_path):
  (tmp_path / 'rt-polarity.pos').write_bytes(b'un clich\xe9 \n')
  (tmp_path / 'rt-polarity.neg').write_bytes(b'bad\n')
  good = values('rt_polarity', tmp_path / 'rt-polarity.pos')
  assert good == [{'text': 'un cliché', 'label': 'pos'}]
  bad = values('rt_polarity', tmp_path / 'rt-polarity.neg')
  assert bad == [{'text': 'bad', 'label': 'neg'}]
  (tmp_path / 'RT.POS').write_bytes(b'good\n')
  good = values('rt_polarity', tmp_path / 'RT.POS')
  assert good == [{'text': 'good', 'label': 'pos'}]
  (tmp_path / 'other.txt').write_text('x')
  assert 'end in .pos and .neg' in refusal(
    'rt_polarity', tmp_path / 'other.txt'
  )


def test_the_original_daily_dialog(tmp_path):
  path = tmp_path / 'dialogues_text.txt'
  path.write_text('Hi . __eou__ You too ? __eou__ \nOne __eou__\n')
  turns = [example['turns'] for example in values('daily_dialog', path)]
  assert turns == [['Hi .', 'You too ?'], ['One']]
  path.write_text('Hi . __eou__\nno end of a turn\n')
  assert refusal('daily_dialog', path).startswith(f'{path}:2: no __eou__')


def test_parquet_as_a_hub_publishes_it(tmp_path):
  table = pyarrow.table(
    {'text': ['a', 'b'], 'label': [1, 0], 'turns': [['x', 'y'], ['z']]}
  )
  names = {'label': {'_type': 'ClassLabel', 'names': ['neg', 'pos']}}
  told = {b'huggingface': json.dumps({'info': {'features': names}}).encode()}
  path = tmp_path / 'train-00000-of-00001.parquet'
  parquet.write_table(table.replace_schema_metadata(told), path)
  assert values('parquet', path) == [
    {'text': 'a', 'label': 'pos', 'turns': ['x', 'y']},
    {'text': 'b', 'label': 'neg', 'turns': ['z']},
  ]
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])
  assert refusal('parquet', path).startswith(f'{path}: no whole Parquet file')


def tarball(path, batches):
  with tarfile.open(path, 'w:gz') as tar:
    for name, batch in batches.items():
      content = pickle.dumps(batch)
      member = tarfile.TarInfo(f'cifar-10-batches-py/{name}')
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))


def cifar10(path, batch):
  """A tarball that has this batch to train on and to test, and empty ones."""
  empty = {b'data': np.zeros((0, 3072), np.uint8), b'labels': []}
  batches = {f'data_batch_{n}': empty for n in range(2, 6)}
  tarball(path, {'data_batch_1': batch, **batches, 'test_batch': batch})


def test_cifar10s_tarball(tmp_path):
  rng = np.random.default_rng(0)
  pixels = rng.integers(256, size=(3, 3072)).astype(np.uint8)
  path = tmp_path / 'cifar-10-python.tar.gz'
  batch = {b'data': pixels, b'labels': [3, 0, 9]}
  cifar10(path, batch)
  found = read('cifar10', path)
  assert [example.split for example in found] == ['train'] * 3 + ['test'] * 3
  labels = [example.values['label'] for example in found[:3]]
  assert labels == ['cat', 'airplane', 'truck']
  image = PIL.Image.open(io.BytesIO(found[1].values['image'].content))
  wanted = pixels[1].reshape(3, 32, 32).transpose(1, 2, 0)
  np.testing.assert_array_equal(np.asarray(image), wanted)
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])
  assert refusal('cifar10', path).startswith(f'{path}: cut off or no tarball')
  path.write_bytes(b'no tarball')
  assert refusal('cifar10', path) == (
    f'{path}: cut off or no tarball (file could not be opened successfully): '
    'fetch it again'
  )


def test_a_tarball_without_all_batches_is_refused(tmp_path):
  path = tmp_path / 'cifar-10-python.tar.gz'
  batch = {b'data': np.zeros((1, 3072), np.uint8), b'labels': [3]}
  tarball(path, {f'data_batch_{n}': batch for n in (4, 1, 3, 2)})
  assert refusal('cifar10', path).startswith(
    f'{path}: holds no data_batch_5, test_batch: fetch'
  )


def test_a_pickle_that_calls_functions_is_refused(tmp_path):
  class Bad:
    def __reduce__(self):
      return print, ('called',)

  path = tmp_path / 'a.tar.gz'
  tarball(path, {'data_batch_1': Bad()})
  assert 'builtins.print has no place in it' in refusal('cifar10', path)


@pytest.mark.parametrize('packed', (False, True))
def test_pictures_by_class(tmp_path, packed):
  files = {
    'train/cat/1.png': picture('red'),
    'train/dog/2.JPG': picture('blue', 'JPEG'),
    'val/cat/3.jpeg': picture('green', 'JPEG'),
    'val/dog/4.png': picture('blue'),
    'train/readme.txt': b'no picture',
  }
  if packed:
    path = tmp_path / 'a.zip'
    with zipfile.ZipFile(path, 'w') as file:
      for name, content in files.items():
        file.writestr(name, content)
  else:
    path = tmp_path
    for name, content in files.items():
      (path / name).parent.mkdir(parents=True, exist_ok=True)
      (path / name).write_bytes(content)
  found = read('images', path)
  told = [(example.split, example.values['label']) for example in found]
  splits = ['train'] * 2 + ['validation'] * 2
  assert told == [*zip(splits, ['cat', 'dog'] * 2, strict=True)]
  assert found[0].values['image'].content == files['train/cat/1.png']


def zipped(path, names):
  with zipfile.ZipFile(path, 'w') as file:
    for name in names:
      file.writestr(name, picture('red'))
  return path


def test_a_split_is_found_in_any_folder_above_the_class(tmp_path):
  names = [
    f'pets/{split}/{label}/x.png'
    for split in ('test-set', 'train')
    for label in ('cat', 'valid')
  ]
  found = read('images', zipped(tmp_path / 'a.zip', names))
  told = [(example.split, example.values['label']) for example in found]
  assert told == [
    (split, label) for split in ('test', 'train') for label in ('cat', 'valid')
  ]


def test_a_picture_of_two_splits_is_refused(tmp_path):
  path = zipped(tmp_path / 'a.zip', ['train/val_1/cat/x.png'])
  assert refusal('images', path) == (
    f'{path}: train/val_1/cat/x.png: lies in two splits, by its folders '
    "['train', 'val_1']: rename one of them"
  )


@pytest.mark.parametrize('more', ('train', 'test'))
def test_classes_that_splits_do_not_share_are_named(tmp_path, more):
  names = ['train/cat/1.png', 'test/cat/2.png', f'{more}/dog/3.png']
  zipped(tmp_path / 'a.zip', names)
  message = f"class 'dog' has pictures in {more} and none in"
  assert message in refusal('images', tmp_path / 'a.zip')


def test_pictures_of_other_formats_are_named(tmp_path, caplog):
  path = zipped(tmp_path / 'a.zip', ['cat/1.webp', 'dog/2.GIF'])
  assert refusal('images', path) == (
    f'{path}: 2 picture(s) such as cat/1.webp: save them as one of .jpg, '
    '.jpeg, .png'
  )
  (tmp_path / 'cat').mkdir()
  (tmp_path / 'cat' / '1.bmp').write_bytes(picture('red', 'BMP'))
  (tmp_path / 'cat' / '2.png').write_bytes(picture('red'))
  for _ in range(2):
    assert len(read('images', tmp_path)) == 1
  assert caplog.text.count('1 picture(s) such as cat/1.bmp are left out') == 1


def test_no_picture_is_named(tmp_path):
  (tmp_path / 'cat').mkdir()
  (tmp_path / 'cat' / 'readme.txt').write_text('no picture')
  assert refusal('images', tmp_path) == (
    f'{tmp_path}: no picture in it (.jpg, .jpeg, .png): give a folder or zip '
    'of class/name.jpg'
  )


def test_pictures_without_a_class_and_damaged_zips(tmp_path):
  (tmp_path / '1.png').write_bytes(picture('red'))
  assert 'lies in no folder' in refusal('images', tmp_path)
  (tmp_path / 'a.zip').write_bytes(b'PK\x03\x04 and no more')
  assert 'no whole zip' in refusal('images', tmp_path / 'a.zip')


def test_what_file_managers_add_to_a_zip_is_no_picture(tmp_path):
  names = ['./cat/1.png', '__MACOSX/cat/._1.png', 'cat/._2.png', '.x/dog/3.png']
  found = read('images', zipped(tmp_path / 'a.zip', names))
  assert [example.where for example in found] == [
    f'{tmp_path / "a.zip"}: ./cat/1.png'
  ]


def test_a_picture_damaged_in_a_zip_is_refused(tmp_path):
  path = tmp_path / 'a.zip'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as file:
    file.writestr('cat/1.png', bytes(range(256)) * 40)
  content = bytearray(path.read_bytes())
  content[60:80] = bytes(20)
  path.write_bytes(content)
  assert 'no whole zip' in refusal('images', path)


@pytest.mark.parametrize(
  ('labels', 'message'),
  (
    ([3, 10], 'label 10 is none of 0 to 9'),
    ([3, -1], 'label -1 is none of 0 to 9'),
    ([3], '2 pictures and 1 labels'),
  ),
)
def test_wrong_labels_of_a_tarball_are_named(tmp_path, labels, message):
  pixels = np.zeros((2, 3072), np.uint8)
  path = tmp_path / 'cifar-10-python.tar.gz'
  tarball(path, {'data_batch_1': {b'data': pixels, b'labels': labels}})
  assert refusal('cifar10', path) == (
    f'{path}: data_batch_1 is no batch of CIFAR-10: {message}'
  )
