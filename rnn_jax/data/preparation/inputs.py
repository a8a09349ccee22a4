"""Which files to read, in which format, for which split."""

import dataclasses
import glob
import hashlib
import importlib
import os
import pkgutil
import re
from types import ModuleType

from rnn_jax import errors

SPLITS = ('train', 'validation', 'test')
ALIASES = {'training': 'train', 'valid': 'validation', 'val': 'validation'}
ALIASES |= {'dev': 'validation', 'development': 'validation'}


@dataclasses.dataclass(frozen=True)
class Input:
  """A file, or a folder of pictures; `split` is '' where it is to be made."""

  path: str
  split: str
  format: str


def split_of(name: str) -> str:
  """Returns the split that a file's or folder's name begins with, or ''."""
  first = re.split(r'[-_.]', name.lower())[0]
  first = ALIASES.get(first, first)
  return first if first in SPLITS else ''


def find(arguments: list[str], format_name: str) -> list[Input]:
  """Returns the inputs of `[split=]path` arguments, sorted within each.

  A path is a file, a glob, or a folder: of files whose names begin with their
  split, of pictures by class, or of folders of Parquet, a split each.

  Raises:
    InputError: nothing is there, a file is empty or of no known format, or
      some have a split and others none.
  """
  if not arguments:
    raise errors.InputError('--input is missing: name a file, glob or folder')
  found = []
  for argument in arguments:
    split, path = _parse(argument)
    files = _files(path, argument, format_name)
    by_name = not split and os.path.isdir(path)
    for file in files:
      own = _split_below(path, file) if by_name else split
      found.append(Input(file, own, format_name or _format(file)))
  without = [input_.path for input_ in found if not input_.split]
  if without and len(without) < len(found):
    raise errors.InputError(
      f'--input: {without[0]} has no split and others have: give it one, as in '
      f'--input=train={without[0]}'
    )
  return found


def load_format(name: str) -> ModuleType:
  """Returns the module of a format.

  Raises:
    InputError: there is none of that name.
  """
  if name not in _formats():
    raise errors.InputError(f'--format={name!r}: choose one of {_formats()}')
  return importlib.import_module(f'{_package().__name__}.{name}')


def digest(path: str) -> str:
  """Returns the SHA-256 of a file, or of a folder's names and contents."""
  total = hashlib.sha256()
  if not os.path.isdir(path):
    _add_file(total, path)
    return total.hexdigest()
  for folder, folders, files in os.walk(path):
    folders.sort()
    for name in sorted(files):
      file = os.path.join(folder, name)
      total.update(os.path.relpath(file, path).encode() + b'\0')
      _add_file(total, file)
  return total.hexdigest()


def _add_file(total, path):
  with open(path, 'rb') as file:
    while block := file.read(1 << 20):
      total.update(block)


def _package():
  return importlib.import_module('rnn_jax.data.preparation.formats')


def _formats():
  return sorted(m.name for m in pkgutil.iter_modules(_package().__path__))


def _parse(argument):
  """(split, path); a path may hold '=' too."""
  split, sign, path = argument.partition('=')
  if sign and split in SPLITS:
    return split, path
  if sign and not (
    os.path.exists(argument) or glob.glob(argument, recursive=True)
  ):
    raise errors.InputError(
      f'--input={argument!r}: no such file, and the split {split!r} is none of '
      f'{SPLITS}'
    )
  return '', argument


def _files(path, argument, format_name):
  if os.path.isdir(path):
    return _of_folder(path, format_name)
  found = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
  files = sorted(file for file in found if os.path.isfile(file))
  if not files:
    raise errors.InputError(
      f'--input={argument!r}: no such file: give a file, a folder or a glob '
      "such as 'folder/*.jsonl'"
    )
  for file in files:
    if not os.path.getsize(file):
      raise errors.InputError(
        f'--input={argument!r}: {file} is empty: fill it or leave it out'
      )
  return files


def _split_below(root, file):
  """The split that a file's name tells, or the folder that it lies in."""
  folder, name = os.path.split(os.path.relpath(file, root))
  return split_of(name) or split_of(os.path.basename(folder))


def _of_folder(path, format_name):
  """The folder itself if it is one of pictures, else its files."""
  names = sorted(os.listdir(path))
  files = [os.path.join(path, name) for name in names if name[0] != '.']
  files = [file for file in files if os.path.isfile(file)]
  if not files and format_name in ('', 'parquet'):
    below = os.path.join(glob.escape(path), '**', '*.parquet')
    files = sorted(glob.glob(below, recursive=True))
  if format_name == 'images' or not files:
    return [path]
  if format_name:
    suffixes = load_format(format_name).SUFFIXES
    return [f for f in files if f.lower().endswith(suffixes or '')]
  return [file for file in files if _format(file, '')]


def _format(path, otherwise=None):
  """The format that a file's name tells; `otherwise` if it tells none."""
  if os.path.isdir(path):
    return 'images'
  for name in _formats():
    if path.lower().endswith(load_format(name).SUFFIXES or ('\0',)):
      return name
  if otherwise is None:
    raise errors.InputError(
      f'{path}: its name tells no format: give --format, one of {_formats()}'
    )
  return otherwise
