"""CIFAR-10's tarball for Python: 50,000 images to train on, 10,000 to test.

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
from rnn_jax.data.images import codec
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values as values_lib

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
  """Loads only arrays: a pickle may call any function."""

  def find_class(self, module, name):
    if (module, name) not in SAFE:
      raise pickle.UnpicklingError(f'{module}.{name} is not allowed in it')
    return super().find_class(module, name)


def read(path: str, options: lines.Options) -> Iterator[values_lib.Row]:
  """Yields {'image', 'label'}, with the split by the name of the batch.

  Raises:
    InputError: the tarball is truncated or lacks a batch, or a batch is
      invalid.
  """
  del options
  missing = dict(BATCHES)
  try:
    with tarfile.open(path) as tar:
      for member in tar:
        name = os.path.basename(member.name)
        if not member.isfile() or name not in missing:
          continue
        codec.check_size(member.size, f'{path}: {name}')
        if (file := tar.extractfile(member)) is not None:
          yield from _batch(file.read(), path, name, missing.pop(name))
  except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
    # The other lines repeat the reason for each compression.
    reason = errors.first_line(error)
    raise errors.InputError(
      f'{path}: truncated or not a tarball ({reason}): download it again'
    ) from None
  if missing:
    raise errors.InputError(
      f'{path}: lacks {", ".join(missing)}: download cifar-10-python.tar.gz '
      'again, which has five batches to train on and one to test'
    )


def classes(path: str) -> tuple[str, ...]:
  """Returns CLASSES, which every tarball has."""
  del path
  return CLASSES


def _batch(content, path, name, split):
  try:
    batch = _Unpickler(io.BytesIO(content), encoding='bytes').load()
    pixels, labels = batch[b'data'], batch[b'labels']
    pixels = np.asarray(pixels, np.uint8).reshape(-1, 3, 32, 32)
    if len(labels) != len(pixels):
      raise ValueError(f'{len(pixels)} images and {len(labels)} labels')
    names = [_class(label) for label in labels]
  except Exception as error:
    raise errors.InputError(
      f"{path}: {name} isn't a batch of CIFAR-10: {error}"
    ) from None
  for number, (image, label) in enumerate(zip(pixels, names, strict=True)):
    # Part of the name, whose hash decides the split of source 'images'.
    where = f'{path}: {name}, picture {number}'
    values = {'image': _png(image), 'label': label}
    yield values_lib.Row(where, values, split)


def _class(label):
  if label not in range(len(CLASSES)):
    raise ValueError(f'label {label!r} is outside 0 to {len(CLASSES) - 1}')
  return CLASSES[label]


def _png(pixels):
  import PIL.Image

  file = io.BytesIO()
  PIL.Image.fromarray(pixels.transpose(1, 2, 0)).save(file, 'PNG')
  return values_lib.Image(file.getvalue())
