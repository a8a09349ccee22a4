"""Images by class, in a folder or zip."""

import zipfile

import pytest

from rnn_jax.data.images import codec
from tests.support import files


def zipped(path, names):
  with zipfile.ZipFile(path, 'w') as file:
    for name in names:
      file.writestr(name, files.image('red'))
  return path


@pytest.mark.parametrize('packed', (False, True))
def test_images_by_class(tmp_path, packed):
  contents = {
    'train/cat/1.png': files.image('red'),
    'train/dog/2.JPG': files.image('blue', 'JPEG'),
    'val/cat/3.jpeg': files.image('green', 'JPEG'),
    'val/dog/4.png': files.image('blue'),
    'train/readme.txt': b'not an image',
  }
  if packed:
    path = tmp_path / 'a.zip'
    with zipfile.ZipFile(path, 'w') as file:
      for name, content in contents.items():
        file.writestr(name, content)
  else:
    path = tmp_path
    for name, content in contents.items():
      (path / name).parent.mkdir(parents=True, exist_ok=True)
      (path / name).write_bytes(content)
  examples = files.read('images', path)
  labels = [(example.split, example.values['label']) for example in examples]
  splits = ['train'] * 2 + ['validation'] * 2
  assert labels == [*zip(splits, ['cat', 'dog'] * 2, strict=True)]
  assert examples[0].values['image'].content == contents['train/cat/1.png']


def test_any_folder_above_the_class_may_name_the_split(tmp_path):
  names = [
    f'pets/{split}/{label}/x.png'
    for split in ('test-set', 'train')
    for label in ('cat', 'valid')
  ]
  examples = files.read('images', zipped(tmp_path / 'a.zip', names))
  labels = [(example.split, example.values['label']) for example in examples]
  assert labels == [
    (split, label) for split in ('test', 'train') for label in ('cat', 'valid')
  ]


def test_an_image_in_two_splits_is_refused(tmp_path):
  path = zipped(tmp_path / 'a.zip', ['train/val_1/cat/x.png'])
  assert files.refusal('images', path) == (
    f'{path}: train/val_1/cat/x.png: in two splits, by its folders '
    "['train', 'val_1']: rename one of them"
  )


@pytest.mark.parametrize('more', ('train', 'test'))
def test_classes_missing_from_a_split_are_named(tmp_path, more):
  names = ['train/cat/1.png', 'test/cat/2.png', f'{more}/dog/3.png']
  zipped(tmp_path / 'a.zip', names)
  message = f"class 'dog' has images in {more} and none in"
  assert message in files.refusal('images', tmp_path / 'a.zip')


def test_images_of_other_formats_are_named(tmp_path, caplog):
  path = zipped(tmp_path / 'a.zip', ['cat/1.webp', 'dog/2.GIF'])
  assert files.refusal('images', path) == (
    f'{path}: 2 image(s) such as cat/1.webp: save them as one of .jpg, '
    '.jpeg, .png'
  )
  (tmp_path / 'cat').mkdir()
  (tmp_path / 'cat' / '1.bmp').write_bytes(files.image('red', 'BMP'))
  (tmp_path / 'cat' / '2.png').write_bytes(files.image('red'))
  for _ in range(2):
    assert len(files.read('images', tmp_path)) == 1
  assert caplog.text.count('1 image(s) such as cat/1.bmp are skipped') == 1


def test_a_folder_without_images_is_refused(tmp_path):
  (tmp_path / 'cat').mkdir()
  (tmp_path / 'cat' / 'readme.txt').write_text('not an image')
  assert files.refusal('images', tmp_path) == (
    f'{tmp_path}: no image in it (.jpg, .jpeg, .png): give a folder or zip '
    'of class/name.jpg'
  )


def test_images_without_a_class_and_damaged_zips_are_refused(tmp_path):
  (tmp_path / '1.png').write_bytes(files.image('red'))
  assert 'not in a folder' in files.refusal('images', tmp_path)
  (tmp_path / 'a.zip').write_bytes(b'PK\x03\x04 and no more')
  assert 'incomplete zip' in files.refusal('images', tmp_path / 'a.zip')


def test_files_that_file_managers_add_to_a_zip_are_skipped(tmp_path):
  names = ['./cat/1.png', '__MACOSX/cat/._1.png', 'cat/._2.png', '.x/dog/3.png']
  examples = files.read('images', zipped(tmp_path / 'a.zip', names))
  assert [example.where for example in examples] == [
    f'{tmp_path / "a.zip"}: ./cat/1.png'
  ]


def test_a_damaged_image_in_a_zip_is_refused(tmp_path):
  path = tmp_path / 'a.zip'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as file:
    file.writestr('cat/1.png', bytes(range(256)) * 40)
  content = bytearray(path.read_bytes())
  content[60:80] = bytes(20)
  path.write_bytes(content)
  assert 'incomplete zip' in files.refusal('images', path)


def test_a_large_member_is_refused_before_it_is_read(tmp_path, monkeypatch):
  path = zipped(tmp_path / 'a.zip', ['cat/1.png', 'dog/1.png'])
  monkeypatch.setattr(codec, 'LARGEST', 10)
  assert 'bytes unpacked, and 10 are allowed' in files.refusal('images', path)


@pytest.mark.parametrize(
  ('offsets', 'value', 'message'),
  (
    ((6, 8), 1, 'is encrypted'),
    ((8, 10), 99, 'compression method is not supported'),
  ),
)
def test_zips_that_cannot_be_read_are_refused(
  offsets, value, message, tmp_path
):
  path = zipped(tmp_path / 'a.zip', ['cat/1.png', 'dog/1.png'])
  content = bytearray(path.read_bytes())
  for magic, at in zip((b'PK\x03\x04', b'PK\x01\x02'), offsets, strict=True):
    start = -1
    while (start := content.find(magic, start + 1)) >= 0:
      content[start + at] = value
  path.write_bytes(content)
  assert message in files.refusal('images', path)
