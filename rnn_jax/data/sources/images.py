"""Pictures by class in files: a folder or zip of [split/]class/name.jpg, or
CIFAR-10's tarball for Python.

They are read once, at the start, and held in memory: for more than fits there,
`launch.prepare` and source 'tfds:NAME'. Splits are those of the files; without
any, `data.splits` deals the pictures out, and where there is no validation
split, it takes its share off training.
"""

import dataclasses
import os

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents


@dataclasses.dataclass(frozen=True)
class Config(base.Files):
  """Options of the source, of section `data` of the config."""

  def check(self, config: config_lib.Config) -> None:
    """Checks that pictures can be read.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    del config
    base.check_pictures(self)


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the pictures of each split.

  Raises:
    InputError: there is no such file, a picture can't be read or has another
      size, a class is none of `data.classes`, or has no picture in one of the
      splits that are given, or to train on; some pictures lie in a split and
      others don't, or in `data.path` and a held-out path.
  """
  found = _given(data)
  if [*found] == ['']:
    dealt = documents.split(found[''], data.splits, 'document')
  else:
    if '' in found:
      found['train'] = found.pop('')
    dealt = documents.complete(found, data)
  argument = f'data.splits={data.splits!r}'
  _check_classes(dealt['train'], argument, 'train', data)
  return dealt


def _given(data):
  """{split: its documents} of `data.path` and the held-out paths."""
  read, splits = _read(data.path, 'data.path', data)
  whole = documents.whole(read)
  found = _by_split(whole, splits, data)
  for name, part in found.items():
    _check_classes(part, f'data.path={data.path!r}', name, data)
  for name in documents.SPLITS[1:]:
    key = f'data.{name}_path'
    if path := getattr(data, f'{name}_path'):
      argument = f'{key}={path!r}'
      found[name] = documents.whole(_read(path, key, data)[0])
      documents.check_apart(whole, found[name], argument)
      _check_classes(found[name], argument, name, data)
  return found


def _check_classes(found, argument, split, data):
  """Every class must have pictures in a split that is given or trained on."""
  there = {*found.labels}
  lacking = [c for n, c in enumerate(data.classes) if n not in there]
  if lacking:
    raise errors.InputError(
      f'{argument}: no picture of {lacking} in {split or "it"}, and '
      f'data.classes={data.classes!r}: add some, or take the class out'
    )


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
    pixels.append(images.decode(values['image'].content, data.image, where))
    names.append(name)
    splits.append(split)
  files = [os.path.abspath(path)]
  if os.path.isdir(path):
    files = [os.path.join(*files, name) for name in names]
  read = images.Pictures(np.stack(pixels), labels, names, files)
  return read, splits


def _class(label, where, data):
  if label not in data.classes:
    raise errors.InputError(
      f'{where}: its class {label!r} is none of data.classes={data.classes!r}: '
      'name it there, or take it out'
    )
  return data.classes.index(label)
