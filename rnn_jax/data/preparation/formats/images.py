"""Images by class: a folder or zip of [split/]class/name.jpg.

Any folder above the class may name the split, so that the dataset may be in a
subfolder.
"""

import contextlib
import functools
import os
import re
import zipfile
import zlib
from collections.abc import Iterator

from absl import logging

from rnn_jax import errors
from rnn_jax.data.images import codec
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values as values_lib
from rnn_jax.data.text import documents
from rnn_jax.system import files

SUFFIXES = ('.zip',)
READABLE = ('.jpg', '.jpeg', '.png')
OTHERS = ('.webp', '.bmp', '.gif', '.tif', '.tiff', '.avif', '.heic')
HIDDEN = re.compile(r'(^|/)(__MACOSX/|\.(?!/))')  # from file managers


def read(path: str, options: lines.Options) -> Iterator[values_lib.Row]:
  """Yields {'image', 'label'}, sorted by name.

  Raises:
    InputError: there is no image, an image has no class or two splits, splits
      have different classes, or the zip is damaged.
  """
  del options
  for name, content in _folder(path) if os.path.isdir(path) else _zip(path):
    parents = _parents(name)
    where = f'{path}: {name}'
    if not parents:
      raise errors.InputError(
        f'{where}: not in a folder: the folder of an image is its class'
      )
    split = _split(parents, where)
    values = {'image': values_lib.Image(content), 'label': parents[-1]}
    yield values_lib.Row(where, values, split)


def classes(path: str) -> set[str]:
  """Returns the names of the folders of images; reads no image.

  Raises:
    InputError: as `read`, except for images without a class.
  """
  names = _folder_names(path) if os.path.isdir(path) else _zip_names(path)
  parents = map(_parents, _image_names(path, names))
  return {above[-1] for above in parents if above}


def _parents(name):
  return name.split('/')[:-1]


def _split(parents, where):
  """Returns the split that a folder above the class names, or ''."""
  named = {documents.split_of(name): name for name in parents[:-1]}
  named.pop('', None)
  if len(named) > 1:
    raise errors.InputError(
      f'{where}: in two splits, by its folders {[*named.values()]}: rename one '
      'of them'
    )
  return next(iter(named), '')


def _check_classes(path, names):
  """Checks that all splits have the same classes as the first one."""
  classes = {}
  for name in names:
    if parents := _parents(name):
      split = _split(parents, f'{path}: {name}')
      classes.setdefault(split, set()).add(parents[-1])
  first, *others = [name for name in documents.SPLITS if name in classes] or [
    ''
  ]
  for other in others:
    if differing := sorted(classes[other] ^ classes[first]):
      one = differing[0]
      has, lacks = (other, first) if one in classes[other] else (first, other)
      raise errors.InputError(
        f'{path}: class {one!r} has images in {has} and none in {lacks}: '
        'splits need the same folders of classes; move or add some'
      )


def _image_names(path, names):
  """Returns the names of images, sorted and checked."""
  names = [name for name in names if not HIDDEN.search(name)]
  readable = sorted(name for name in names if name.lower().endswith(READABLE))
  others = sorted(name for name in names if name.lower().endswith(OTHERS))
  remedy = f'save them as one of {", ".join(READABLE)}'
  if not readable and others:
    raise errors.InputError(
      f'{path}: {len(others)} image(s) such as {others[0]}: {remedy}'
    )
  if not readable:
    raise errors.InputError(
      f'{path}: no image in it ({", ".join(READABLE)}): give a folder or zip '
      'of class/name.jpg'
    )
  if others:
    _warn(f'{path}: {len(others)} image(s) such as {others[0]}', remedy)
  _check_classes(path, readable)
  return readable


@functools.cache  # the inputs are read twice
def _warn(skipped, remedy):
  logging.warning('%s are skipped: %s', skipped, remedy)


def _folder_names(root):
  paths = (os.path.relpath(path, root) for path in files.below(root))
  return [path.replace(os.sep, '/') for path in paths]


def _folder(root):
  for name in _image_names(root, _folder_names(root)):
    with open(os.path.join(root, name), 'rb') as file:
      yield name, file.read()


def _zip_names(path):
  with _opened(path) as file:
    return file.namelist()


def _zip(path):
  with _opened(path) as file:
    for name in _image_names(path, file.namelist()):
      codec.check_size(file.getinfo(name).file_size, f'{path}: {name}')
      yield name, file.read(name)


@contextlib.contextmanager
def _opened(path):
  """Opens a zip; an error of it within this context is an InputError."""
  try:
    with zipfile.ZipFile(path) as file:
      yield file
  except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
    raise errors.InputError(f'{path}: incomplete zip: {error}') from None
  except (RuntimeError, NotImplementedError) as error:
    raise errors.InputError(
      f'{path}: {error}: pack it again without a password, deflated'
    ) from None
