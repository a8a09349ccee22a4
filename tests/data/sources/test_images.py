"""Images in files, read directly and from a prepared dataset."""

import shutil
import zipfile

import numpy as np
import PIL.Image
import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.images import images as images_lib
from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import requests
from rnn_jax.data.sources import images
from rnn_jax.data.sources import tfds
from tests.data.images import test_images
from tests.support import files

IMAGE = config.Image(size=4)
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (24, 4, 4, 3), np.uint8)


def write(folder, splits=('',), each=4, start=0):
  """Writes images of two classes. Returns {their path: their pixels}.

  `PIXELS[start]` are the first image's.
  """
  written = {}
  for split in splits:
    for label in ('cat', 'dog'):
      for _ in range(each):
        name = '/'.join([*filter(None, (split, label)), f'{len(written)}.png'])
        written[name] = PIXELS[start + len(written)]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(written[name]).save(path)
  return written


def load(reader, path, **options):
  data = {
    'source': 'images',
    'layout': 'images',
    'classes': ('cat', 'dog'),
    'splits': (50, 25, 25),
    'image': IMAGE,
  }
  data |= {'path': str(path)} if path else {}
  return reader.load(config.section('data', **data | options))


def read(documents):
  """Returns {name: pixels} of all splits."""
  return {
    split.names[n]: np.frombuffer(split.read(n), np.uint8)
    for split in documents.values()
    for n in range(len(split))
  }


@pytest.mark.parametrize('packed', (False, True))
def test_every_image_is_read_once(tmp_path, packed):
  written = write(tmp_path / 'a')
  path = tmp_path / 'a'
  if packed:
    path = tmp_path / 'a.zip'
    with zipfile.ZipFile(path, 'w') as file:
      for name in written:
        file.write(tmp_path / 'a' / name, name)
  splits = load(images, path)
  assert [len(splits[split]) for split in ('train', 'validation', 'test')] == [
    4,
    2,
    2,
  ]
  pixels = read(splits)
  assert pixels.keys() == written.keys()
  for name, wanted in written.items():
    np.testing.assert_array_equal(pixels[name], wanted.ravel())
  for split in splits.values():
    for name, label in zip(split.names, split.labels, strict=True):
      assert name.startswith(('cat', 'dog')[label])


def test_splits_of_folders_are_kept_and_validation_is_made(tmp_path):
  write(tmp_path, ('train', 'test'))
  splits = load(images, tmp_path)
  assert {*splits['test'].names} == {
    name for name in read(splits) if name.startswith('test')
  }
  assert (len(splits['train']), len(splits['validation'])) == (6, 2)


def test_held_out_images_can_be_elsewhere(tmp_path):
  write(tmp_path / 'a')
  write(tmp_path / 'b', each=2, start=8)
  splits = load(images, tmp_path / 'a', test_path=str(tmp_path / 'b'))
  assert [len(splits[split]) for split in ('train', 'validation', 'test')] == [
    6,
    2,
    4,
  ]


def test_cifar10s_tarball_is_read(tmp_path):
  path = tmp_path / 'cifar.tar.gz'
  pixels = RNG.integers(0, 256, (8, 3072), np.uint8)
  batch = {b'data': pixels, b'labels': [3, 5] * 4}
  files.cifar10(path, batch)
  splits = load(images, path, image=config.Image(size=32))
  assert [len(splits[split]) for split in ('train', 'validation', 'test')] == [
    6,
    2,
    8,
  ]
  assert [*splits['test'].labels] == [0, 1] * 4
  first = np.frombuffer(splits['test'].read(0), np.uint8).reshape(32, 32, 3)
  np.testing.assert_array_equal(
    first, pixels[0].reshape(3, 32, 32).transpose(1, 2, 0)
  )


def test_a_prepared_dataset_has_the_same_images(tmp_path):
  written = write(tmp_path / 'raw', ('train', 'test'))
  inputs = (str(tmp_path / 'raw'),)
  prepare.prepare(requests.Request('pets', str(tmp_path), inputs))
  options = {
    'source': 'tfds:pets',
    'data_dir': str(tmp_path),
    'field': 'image',
  }
  splits = load(tfds, '', **options)
  assert {name: len(split) for name, split in splits.items()} == {
    'train': 6,
    'validation': 2,
    'test': 8,
  }
  of_files = sorted(x.tobytes() for x in written.values())
  assert sorted(x.tobytes() for x in read(splits).values()) == of_files
  labels = {x.tobytes(): 'dog' in name for name, x in written.items()}
  for split in splits.values():
    for n in range(len(split)):
      assert split.labels[n] == labels[split.read(n)]
  with pytest.raises(errors.InputError, match=r"are \['image'\]: name one"):
    load(tfds, '', **options | {'field': 'text'})


@pytest.mark.parametrize(
  ('name', 'message'),
  (
    ('cow/1.png', "its class 'cow' isn't in data.classes"),
    ('cat/bad.png', 'cat/bad.png: cannot be read as an image'),
    ('train/cat/1.png', 'is in no split and others are'),
  ),
)
def test_errors_are_named(tmp_path, name, message):
  write(tmp_path)
  path = tmp_path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(
    b'nothing' if 'bad' in name else test_images.encode(PIXELS[0])
  )
  with pytest.raises(errors.InputError, match=message):
    load(images, tmp_path)


def test_a_class_that_a_held_out_path_lacks_is_named(tmp_path):
  write(tmp_path / 'a')
  write(tmp_path / 'b', start=8)
  shutil.rmtree(tmp_path / 'b' / 'dog')
  path = str(tmp_path / 'b')
  message = rf"data.test_path='{path}': no image of \['dog'\] in test, and"
  with pytest.raises(errors.InputError, match=message):
    load(images, tmp_path / 'a', test_path=path)


def test_a_class_without_any_image_is_named(tmp_path):
  write(tmp_path)
  with pytest.raises(errors.InputError, match=r"no image of \['cow'\] in it"):
    load(images, tmp_path, classes=('cat', 'cow', 'dog'))


def test_a_class_without_a_training_image_is_named(tmp_path):
  refused = 0
  for n in range(8):
    folder = tmp_path / str(n)
    write(folder)
    shutil.rmtree(folder / 'dog')
    (folder / 'dog').mkdir()
    PIL.Image.fromarray(PIXELS[n]).save(folder / 'dog' / f'{n}.png')
    try:
      splits = load(images, folder)
    except errors.InputError as error:
      message = "data.splits=(50, 25, 25): no image of ['dog'] in train, and"
      assert str(error).startswith(message)
      refused += 1
    else:
      assert 1 in splits['train'].labels
  assert 0 < refused < 8


@pytest.mark.parametrize('name', ('validation', 'test'))
@pytest.mark.parametrize('inner', ('', 'more'))
def test_held_out_images_that_are_trained_on_are_refused(tmp_path, name, inner):
  write(tmp_path / 'a' / inner)
  (tmp_path / 'b').symlink_to(tmp_path / 'a')
  held_out = {f'{name}_path': str(tmp_path / 'b' / inner)}
  message = rf'data.{name}_path=.*: data.path matches .*cat/0.png too: remove'
  with pytest.raises(errors.InputError, match=message):
    load(images, tmp_path / 'a', **held_out)


def test_no_file_is_named(tmp_path):
  with pytest.raises(errors.InputError, match='data.path=.*: no such file'):
    load(images, tmp_path / 'nothing.zip')


def test_a_reader_counts_bytes():
  read = images_lib.InMemoryImages(PIXELS, [0] * 24, map(str, range(24)))
  assert set(read.sizes) == {48}
  assert read.read(3, 1, 5) == PIXELS[3].tobytes()[1:5]


@pytest.mark.parametrize('packed', (False, True))
def test_folders_are_the_classes(tmp_path, packed):
  write(tmp_path / 'raw', splits=('train', 'test'))
  path = tmp_path / 'raw'
  if packed:
    path = shutil.make_archive(str(tmp_path / 'raw'), 'zip', path)
  options = {'source': 'images', 'layout': 'images', 'image': IMAGE}
  data = config.section('data', path=str(path), **options)
  resolved = data.resolve(config.section('task', name='image_classification'))
  assert resolved.classes == ('cat', 'dog')
  assert images.load(resolved)['train'].labels is not None
  given = config.section('data', path='', classes=('dog', 'cat'), **options)
  assert given.resolve(None).classes == ('dog', 'cat')
