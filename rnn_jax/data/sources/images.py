"""Image files by class: a folder or zip of [split/]class/name.jpg, or
CIFAR-10's tarball for Python. Without `data.classes`, the folders that the
images of `data.path` are in are the classes.

They are read once, at the start, and kept in memory. For more than fits, use
`launch.prepare` and source 'tfds:NAME'. The splits are those of the files; if
there are none, `data.splits` divides the images. A missing validation split is
taken from the training split, by `data.splits`.
"""

import dataclasses
import os
import typing

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.images import images
from rnn_jax.data.preparation import inputs
from rnn_jax.data.sources import base
from rnn_jax.data.tables import lines
from rnn_jax.data.text import documents


@dataclasses.dataclass(frozen=True)
class Config(base.Files):
  """Options of the source, of section `data` of the config."""

  names_classes: typing.ClassVar[bool] = True

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the classes that the folders are named after.

    Raises:
      InputError: `data.path` isn't a folder or an archive of images.
    """
    del task
    if self.classes:
      return self
    form = _format(self.path, 'data.path')
    found = form.classes(self.path)
    return dataclasses.replace(self, classes=columns.in_order(found))

  def check(self, config: config_lib.Config) -> None:
    """Checks that the layout is for images.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    del config
    images.check_layout(self)


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the images of each split.

  Raises:
    InputError: a file is missing; an image can't be read or has another size; a
      class isn't in `data.classes`, or has no image in a given split or in
      training; only some images are in a split; or an image is in both
      `data.path` and a held-out path.
  """
  given = _given_splits(data)
  if [*given] == ['']:
    splits = documents.split(given[''], data.splits, 'document')
  else:
    if '' in given:
      given['train'] = given.pop('')
    splits = documents.complete(given, data)
  argument = f'data.splits={data.splits!r}'
  _check_classes(splits['train'], argument, 'train', data)
  return splits


def _given_splits(data):
  """Returns {split: its documents} of `data.path` and the held-out paths."""
  reader, splits = read(data.path, 'data.path', data)
  everything = documents.whole(reader)
  given = _by_split(everything, splits, data)
  for name, part in given.items():
    _check_classes(part, f'data.path={data.path!r}', name, data)
  for name in documents.SPLITS[1:]:
    key = f'data.{name}_path'
    if path := getattr(data, f'{name}_path'):
      argument = f'{key}={path!r}'
      given[name] = documents.whole(read(path, key, data)[0])
      documents.check_disjoint(everything, given[name], argument)
      _check_classes(given[name], argument, name, data)
  return given


def _check_classes(part, argument, split, data):
  """Every class must have images in each given split and in training."""
  present = {*part.labels}
  missing = [c for n, c in enumerate(data.classes) if n not in present]
  if missing:
    raise errors.InputError(
      f'{argument}: no image of {missing} in {split or "it"}, and '
      f'data.classes={data.classes!r}: add some, or remove the class'
    )


def _by_split(everything, splits, data):
  """Returns {split: its documents}; '' is the split of those without one."""
  names = {*splits}
  if '' in names and len(names) > 1:
    where = everything.reader.names[splits.index('')]
    raise errors.InputError(
      f'data.path={data.path!r}: {where} is in no split and others are: name '
      'its folder train, validation or test'
    )
  return {name: everything.select(np.array(splits) == name) for name in names}


def _format(path, key):
  """Returns the module that reads a folder, a zip or a tarball."""
  if not os.path.exists(path):
    raise errors.InputError(
      f'{key}={path!r}: no such file: give a folder or zip of class/name.jpg, '
      "or CIFAR-10's tarball"
    )
  is_images = os.path.isdir(path) or path.lower().endswith('.zip')
  return inputs.load_format('images' if is_images else 'cifar10')


def read(
  path: str, key: str, data: Config
) -> tuple[images.InMemoryImages, list[str]]:
  """Returns (the Reader of all images of a file or folder, their splits).

  Raises:
    InputError: as `load`; `key` is the config key that a message names.
  """
  examples_of = _format(path, key).read
  image = images.options_of(data)
  pixels, labels, names, splits = [], [], [], []
  for where, values, split in examples_of(path, lines.Options()):
    name = where.removeprefix(f'{path}: ')
    labels.append(_class(values['label'], where, data))
    pixels.append(images.decode(values['image'].content, image, where))
    names.append(name)
    splits.append(split)
  files = [os.path.abspath(path)]
  if os.path.isdir(path):
    files = [os.path.join(*files, name) for name in names]
  return images.InMemoryImages(np.stack(pixels), labels, names, files), splits


def _class(label, where, data):
  if label not in data.classes:
    raise errors.InputError(
      f"{where}: its class {label!r} isn't in data.classes={data.classes!r}: "
      'add it there, or remove the image'
    )
  return data.classes.index(label)
