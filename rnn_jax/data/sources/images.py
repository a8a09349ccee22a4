"""Pictures by class in files: a folder or zip of [split/]class/name.jpg, or
CIFAR-10's tarball for Python.

They are read once, at the start, and held in memory: for more than fits there,
`launch.prepare` and source 'tfds:NAME'. Splits are those of the files; without
any, `data.splits` deals the pictures out, and where there is no validation
split, it takes its share off training.
"""

import os

import numpy as np

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import documents
from rnn_jax.data import pictures
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs


def load(data: config.Data) -> dict[str, documents.Documents]:
  """Returns the pictures of each split.

  Raises:
    InputError: there is no such file, a picture can't be read or has another
      size, a class is none of `data.classes`, or some pictures lie in a split
      and others don't.
  """
  read, splits = _read(data.path, 'data.path', data)
  found = _by_split(documents.whole(read), splits, data)
  for name in documents.SPLITS[1:]:
    if path := getattr(data, f'{name}_path'):
      read, _ = _read(path, f'data.{name}_path', data)
      found[name] = documents.whole(read)
  if [*found] == ['']:
    return documents.split(found[''], data.splits, 'document')
  if '' in found:
    found['train'] = found.pop('')
  return documents.complete(found, data)


def _by_split(found, splits, data):
  """{split: its documents}; '' is the split of those that have none."""
  names = {*splits}
  if '' in names and len(names) > 1:
    where = found.reader.names[splits.index('')]
    raise errors.InputError(
      f'data.path={data.path!r}: {where} lies in no split and others do: name '
      'its folder train, validation or test'
    )
  return {name: found.select(np.array(splits) == name) for name in names}


def _read(path, key, data):
  """Returns (the Reader of all pictures of a file or folder, their splits)."""
  if not os.path.exists(path):
    raise errors.InputError(
      f'{key}={path!r}: no such file: give a folder or zip of class/name.jpg, '
      "or CIFAR-10's tarball"
    )
  form = 'images' if os.path.isdir(path) else 'cifar10'
  form = 'images' if path.lower().endswith('.zip') else form
  pixels, labels, names, splits = [], [], [], []
  for where, values, split in inputs.load_format(form).read(
    path, examples.Options()
  ):
    name = where.removeprefix(f'{path}: ')
    labels.append(_class(values['label'], where, data))
    pixels.append(pictures.decode(values['image'].content, data.image, where))
    names.append(name)
    splits.append(split)
  files = (os.path.abspath(path),)
  read = pictures.Pictures(np.stack(pixels), labels, names, files)
  return read, splits


def _class(label, where, data):
  if label not in data.classes:
    raise errors.InputError(
      f'{where}: its class {label!r} is none of data.classes={data.classes!r}: '
      'name it there, or take it out'
    )
  return data.classes.index(label)
