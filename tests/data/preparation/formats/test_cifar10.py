"""CIFAR-10's tarball, complete and damaged."""

import io

import numpy as np
import PIL.Image
import pytest

from tests.support import files


def test_cifar10s_tarball(tmp_path):
  rng = np.random.default_rng(0)
  pixels = rng.integers(256, size=(3, 3072)).astype(np.uint8)
  path = tmp_path / 'cifar-10-python.tar.gz'
  batch = {b'data': pixels, b'labels': [3, 0, 9]}
  files.cifar10(path, batch)
  examples = files.read('cifar10', path)
  assert [example.split for example in examples] == ['train'] * 3 + ['test'] * 3
  labels = [example.values['label'] for example in examples[:3]]
  assert labels == ['cat', 'airplane', 'truck']
  image = PIL.Image.open(io.BytesIO(examples[1].values['image'].content))
  wanted = pixels[1].reshape(3, 32, 32).transpose(1, 2, 0)
  np.testing.assert_array_equal(np.asarray(image), wanted)
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])
  assert files.refusal('cifar10', path).startswith(
    f'{path}: truncated or not a tarball'
  )
  path.write_bytes(b'no tarball')
  assert files.refusal('cifar10', path) == (
    f'{path}: truncated or not a tarball (file could not be opened '
    'successfully): download it again'
  )


def test_a_tarball_without_all_batches_is_refused(tmp_path):
  path = tmp_path / 'cifar-10-python.tar.gz'
  batch = {b'data': np.zeros((1, 3072), np.uint8), b'labels': [3]}
  files.tarball(path, {f'data_batch_{n}': batch for n in (4, 1, 3, 2)})
  assert files.refusal('cifar10', path).startswith(
    f'{path}: lacks data_batch_5, test_batch: download'
  )


def test_a_pickle_that_calls_functions_is_refused(tmp_path):
  class Bad:
    def __reduce__(self):
      return print, ('called',)

  path = tmp_path / 'a.tar.gz'
  files.tarball(path, {'data_batch_1': Bad()})
  assert 'builtins.print is not allowed in it' in files.refusal('cifar10', path)


@pytest.mark.parametrize(
  ('labels', 'message'),
  (
    ([3, 10], 'label 10 is outside 0 to 9'),
    ([3, -1], 'label -1 is outside 0 to 9'),
    ([3], '2 images and 1 labels'),
  ),
)
def test_wrong_labels_of_a_tarball_are_named(tmp_path, labels, message):
  pixels = np.zeros((2, 3072), np.uint8)
  path = tmp_path / 'cifar-10-python.tar.gz'
  files.tarball(path, {'data_batch_1': {b'data': pixels, b'labels': labels}})
  assert files.refusal('cifar10', path) == (
    f"{path}: data_batch_1 isn't a batch of CIFAR-10: {message}"
  )
