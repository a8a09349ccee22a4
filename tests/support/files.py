"""Helpers: write files of some formats, read them, catch errors."""

import io
import pickle
import tarfile

import numpy as np
import PIL.Image
import pytest

from rnn_jax import errors
from rnn_jax.data.preparation import inputs
from rnn_jax.data.tables import lines


def read(name, path, **options):
  module = inputs.load_format(name)
  return list(module.read(str(path), lines.Options(**options)))


def values(name, path, **options):
  return [example.values for example in read(name, path, **options)]


def refusal(name, path, **options):
  with pytest.raises(errors.InputError) as caught:
    read(name, path, **options)
  return str(caught.value)


def image(color, kind='PNG'):
  file = io.BytesIO()
  PIL.Image.new('RGB', (3, 2), color).save(file, kind)
  return file.getvalue()


def tarball(path, batches):
  with tarfile.open(path, 'w:gz') as tar:
    for name, batch in batches.items():
      content = pickle.dumps(batch)
      member = tarfile.TarInfo(f'cifar-10-batches-py/{name}')
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))


def cifar10(path, batch):
  """Writes a tarball with this batch to train on and to test."""
  empty = {b'data': np.zeros((0, 3072), np.uint8), b'labels': []}
  batches = {f'data_batch_{n}': empty for n in range(2, 6)}
  tarball(path, {'data_batch_1': batch, **batches, 'test_batch': batch})
