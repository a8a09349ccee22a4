"""The files to read, with the format and the split of each."""

import dataclasses
import glob
import hashlib
import importlib
import os
import pkgutil
from types import ModuleType

from rnn_jax import errors
from rnn_jax.data.preparation import formats
from rnn_jax.data.tables import rows
from rnn_jax.data.text import documents
from rnn_jax.system import files as files_lib


@dataclasses.dataclass(frozen=True)
class Input:
  """A file, or a folder of images; `split` is '' if it isn't given."""

  path: str
  split: str
  format: str


def find(arguments: list[str], format_name: str) -> list[Input]:
  """Returns the inputs of `[split=]path` arguments, sorted within each.

  A path is a file, a glob, or a folder: of files whose names begin with their
  split, of images by class, or of a folder of Parquet files for each split.

  Raises:
    InputError: a path doesn't exist, a file is empty or of unknown format, or
      only some inputs have a split.
  """
  if not arguments:
    raise errors.InputError('--input is missing: name a file, glob or folder')
  inputs = []
  for argument in arguments:
    split, path = _parse(argument)
    files = _files(path, argument, format_name)
    by_name = not split and os.path.isdir(path)
    for file in files:
      own = _split_below(path, file) if by_name else split
      inputs.append(Input(file, own, format_name or _format(file)))
  without = [input_.path for input_ in inputs if not input_.split]
  if without and len(without) < len(inputs):
    raise errors.InputError(
      f'--input: {without[0]} has no split and others have: give it one, as in '
      f'--input=train={without[0]}'
    )
  return inputs


def load_format(name: str) -> ModuleType:
  """Returns the module of a format.

  Raises:
    InputError: no format has that name.
  """
  if name in rows.FORMATS:
    return rows.FORMATS[name]
  if name not in _formats():
    raise errors.InputError(f'--format={name!r}: choose one of {_formats()}')
  return importlib.import_module(f'{formats.__name__}.{name}')


def digest(path: str) -> str:
  """Returns the SHA-256 of a file, or of a folder's names and contents."""
  if not os.path.isdir(path):
    with open(path, 'rb') as opened:
      return hashlib.file_digest(opened, 'sha256').hexdigest()
  total = hashlib.sha256()
  for file in files_lib.below(path):
    name = os.path.relpath(file, path)
    total.update(f'{name}\0{digest(file)}\0'.encode(errors='replace'))
  return total.hexdigest()


def _formats():
  own = (module.name for module in pkgutil.iter_modules(formats.__path__))
  return sorted([*rows.FORMATS, *own])


def _parse(argument):
  """Returns (split, path); a path may contain '='."""
  split, sign, path = argument.partition('=')
  if sign and split in documents.SPLITS:
    return split, path
  if sign and not (
    os.path.exists(argument) or glob.glob(argument, recursive=True)
  ):
    raise errors.InputError(
      f"--input={argument!r}: no such file, and the split {split!r} isn't one "
      f'of {documents.SPLITS}'
    )
  return '', argument


def _files(path, argument, format_name):
  if os.path.isdir(path):
    return _files_of_folder(path, format_name)
  files = files_lib.matching(path)
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
  """Returns the split in the name of a file or of its folder, or ''."""
  folder, name = os.path.split(os.path.relpath(file, root))
  return documents.split_of(name) or documents.split_of(
    os.path.basename(folder)
  )


def _files_of_folder(path, format_name):
  """Returns the folder itself if it has images by class, else its files."""
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


def _format(path, default=None):
  """Returns the format of a file by its name, or `default` if not None."""
  if os.path.isdir(path):
    return 'images'
  for name in _formats():
    if path.lower().endswith(load_format(name).SUFFIXES or ('\0',)):
      return name
  if default is None:
    raise errors.InputError(
      f"{path}: its name doesn't show its format: give --format, one of "
      f'{_formats()}'
    )
  return default
