"""Pictures by class: a folder or zip of [split/]class/name.jpg."""

import os
import zipfile
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs

SUFFIXES = ('.zip',)
PICTURES = ('.jpg', '.jpeg', '.png')


def read(path: str, options: examples.Options) -> Iterator[examples.Example]:
  """Yields {'image', 'label'}, in order of names.

  Raises:
    InputError: there is no picture, one lies in no class, or the zip is
      damaged.
  """
  del options
  files = _folder(path) if os.path.isdir(path) else _zip(path)
  found = False
  for name, content in files:
    *parents, _ = name.split('/')
    where = f'{path}: {name}'
    if not parents:
      raise errors.InputError(
        f'{where}: lies in no folder: the folder of a picture is its class'
      )
    found = True
    split = inputs.split_of(parents[0]) if len(parents) > 1 else ''
    values = {'image': examples.Image(content), 'label': parents[-1]}
    yield examples.Example(where, values, split)
  if not found:
    raise errors.InputError(f'{path}: no picture in it ({", ".join(PICTURES)})')


def _is_picture(name):
  return name.lower().endswith(PICTURES)


def _folder(root):
  names = sorted(
    os.path.relpath(os.path.join(folder, name), root).replace(os.sep, '/')
    for folder, _, files in os.walk(root)
    for name in files
    if _is_picture(name)
  )
  for name in names:
    with open(os.path.join(root, name), 'rb') as file:
      yield name, file.read()


def _zip(path):
  try:
    with zipfile.ZipFile(path) as file:
      for name in sorted(filter(_is_picture, file.namelist())):
        yield name, file.read(name)
  except (zipfile.BadZipFile, EOFError, OSError) as error:
    raise errors.InputError(f'{path}: no whole zip: {error}') from None
