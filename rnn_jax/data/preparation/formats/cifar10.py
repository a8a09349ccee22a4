"""CIFAR-10's tarball for Python: 50,000 pictures to train on, 10,000 to test.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images",
2009.
"""

import io
import os
import pickle
import tarfile
import zlib
from collections.abc import Iterator

import numpy as np

from rnn_jax import errors
from rnn_jax.data.preparation import examples

SUFFIXES = ('.tar.gz', '.tgz', '.tar')
BATCHES = {f'data_batch_{n}': 'train' for n in range(1, 6)}
BATCHES['test_batch'] = 'test'
CLASSES = (
  'airplane',
  'automobile',
  'bird',
  'cat',
  'deer',
  'dog',
  'frog',
  'horse',
  'ship',
  'truck',
)
SAFE = {
  ('numpy', 'dtype'),
  ('numpy', 'ndarray'),
  ('numpy.core.multiarray', '_reconstruct'),
  ('numpy._core.multiarray', '_reconstruct'),
  ('_codecs', 'encode'),
}


class _Unpickler(pickle.Unpickler):
  """Makes arrays and nothing else: a pickle may name any function."""

  def find_class(self, module, name):
    if (module, name) not in SAFE:
      raise pickle.UnpicklingError(f'{module}.{name} has no place in it')
    return super().find_class(module, name)


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields {'image', 'label'} with the split of each batch's name.

  Raises:
    InputError: the tarball is cut off, lacks a batch or holds other things.
  """
  del options
  missing = dict(BATCHES)
  try:
    with tarfile.open(path) as tar:
      for member in tar:
        name = os.path.basename(member.name)
        if member.isfile() and (split := missing.pop(name, None)):
          yield from _batch(tar.extractfile(member).read(), path, name, split)
  except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
    reason = str(error).partition('\n')[0].rstrip(':')  # then one a format
    raise errors.InputError(
      f'{path}: cut off or no tarball ({reason}): fetch it again'
    ) from None
  if missing:
    raise errors.InputError(
      f'{path}: holds no {", ".join(missing)}: fetch cifar-10-python.tar.gz '
      'again, which has five batches to train on and one to test'
    )


def _batch(content, path, name, split):
  try:
    batch = _Unpickler(io.BytesIO(content), encoding='bytes').load()
    pixels, labels = batch[b'data'], batch[b'labels']
    pixels = np.asarray(pixels, np.uint8).reshape(-1, 3, 32, 32)
    if len(labels) != len(pixels):
      raise ValueError(f'{len(pixels)} pictures and {len(labels)} labels')
    names = [_class(label) for label in labels]
  except Exception as error:
    raise errors.InputError(
      f'{path}: {name} is no batch of CIFAR-10: {error}'
    ) from None
  for number, (image, label) in enumerate(zip(pixels, names, strict=True)):
    where = f'{path}: {name}, picture {number}'
    values = {'image': _png(image), 'label': label}
    yield examples.Example(where, values, split)


def _class(label):
  if label not in range(len(CLASSES)):
    raise ValueError(f'label {label!r} is none of 0 to {len(CLASSES) - 1}')
  return CLASSES[label]


def _png(pixels):
  import PIL.Image

  file = io.BytesIO()
  PIL.Image.fromarray(pixels.transpose(1, 2, 0)).save(file, 'PNG')
  return examples.Image(file.getvalue())
