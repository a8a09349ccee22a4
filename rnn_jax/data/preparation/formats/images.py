"""Pictures by class: a folder or zip of [split/]class/name.jpg.

Any folder above the class may be the split's, so that a set may lie in a folder
of its own.
"""

import functools
import os
import re
import zipfile
import zlib
from collections.abc import Iterator

from absl import logging

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs

SUFFIXES = ('.zip',)
PICTURES = ('.jpg', '.jpeg', '.png')
OTHERS = ('.webp', '.bmp', '.gif', '.tif', '.tiff', '.avif', '.heic')
HIDDEN = re.compile(r'(^|/)(__MACOSX/|\.(?!/))')  # of file managers


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields {'image', 'label'}, in order of names.

  Raises:
    InputError: there is no picture, one lies in no class or in two splits,
      splits have other classes, or the zip is damaged.
  """
  del options
  for name, content in _folder(path) if os.path.isdir(path) else _zip(path):
    parents = _parents(name)
    where = f'{path}: {name}'
    if not parents:
      raise errors.InputError(
        f'{where}: lies in no folder: the folder of a picture is its class'
      )
    split = _split(parents, where)
    values = {'image': examples.Image(content), 'label': parents[-1]}
    yield examples.Example(where, values, split)


def _parents(name):
  return name.split('/')[:-1]


def _split(parents, where):
  """The split that a folder above the class is named after, or ''."""
  named = {inputs.split_of(name): name for name in parents[:-1]}
  named.pop('', None)
  if len(named) > 1:
    raise errors.InputError(
      f'{where}: lies in two splits, by its folders {[*named.values()]}: '
      'rename one of them'
    )
  return next(iter(named), '')


def _check_classes(path, names):
  """All splits must have the folders of the first one."""
  found = {}
  for name in names:
    if parents := _parents(name):
      split = _split(parents, f'{path}: {name}')
      found.setdefault(split, set()).add(parents[-1])
  splits = [name for name in inputs.SPLITS if name in found]
  for name in splits[1:]:
    if apart := sorted(found[name] ^ found[splits[0]]):
      there = name if apart[0] in found[name] else splits[0]
      lacking = splits[0] if there == name else name
      raise errors.InputError(
        f'{path}: class {apart[0]!r} has pictures in {there} and none in '
        f'{lacking}: splits need the same folders of classes; move or add some'
      )


def _pictures(path, names):
  """Returns the names of pictures, sorted and checked."""
  names = [name for name in names if not HIDDEN.search(name)]
  found = sorted(name for name in names if name.lower().endswith(PICTURES))
  others = sorted(name for name in names if name.lower().endswith(OTHERS))
  remedy = f'save them as one of {", ".join(PICTURES)}'
  if not found and others:
    raise errors.InputError(
      f'{path}: {len(others)} picture(s) such as {others[0]}: {remedy}'
    )
  if not found:
    raise errors.InputError(
      f'{path}: no picture in it ({", ".join(PICTURES)}): give a folder or zip '
      'of class/name.jpg'
    )
  if others:
    _warn(f'{path}: {len(others)} picture(s) such as {others[0]}', remedy)
  _check_classes(path, found)
  return found


@functools.cache  # a preparation reads all inputs twice
def _warn(left_out, remedy):
  logging.warning('%s are left out: %s', left_out, remedy)


def _folder(root):
  names = [
    os.path.relpath(os.path.join(folder, name), root).replace(os.sep, '/')
    for folder, _, files in os.walk(root)
    for name in files
  ]
  for name in _pictures(root, names):
    with open(os.path.join(root, name), 'rb') as file:
      yield name, file.read()


def _zip(path):
  try:
    with zipfile.ZipFile(path) as file:
      for name in _pictures(path, file.namelist()):
        yield name, file.read(name)
  except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
    raise errors.InputError(f'{path}: no whole zip: {error}') from None
