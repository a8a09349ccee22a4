"""A model in one file, or in several as llama-gguf-split writes them.

    NAME-00001-of-00003.gguf    the model's values, and tensors
    NAME-00002-of-00003.gguf    more tensors, and so on

    split.no               which part a file is, from 0 on
    split.count            how many parts there are
    split.tensors.count    how many tensors all parts have

Source: github.com/ggml-org/llama.cpp, tools/gguf-split.
"""

import pathlib
import re

from rnn_jax import errors
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.gguf import reader
from rnn_jax.system import files

NAME = re.compile(r'(.+)-(\d{5})-of-(\d{5})\.gguf')
NUMBER, COUNT, TENSORS = 'split.no', 'split.count', 'split.tensors.count'


def read(path: pathlib.Path) -> reader.File:
  """Returns a file, or all parts of which it is one; only headers are read.

  The values are those of the first part.

  Raises:
    InputError: a file can't be read, is damaged, missing, or another part than
      its name says.
  """
  file = reader.read(path)
  count = file.values.get(COUNT, 1)
  if count in (0, 1):
    return file
  paths, within = _paths(path, count), files.named(path)
  values, tensors = {}, {}
  for n, part in enumerate(paths):
    file = reader.read(part, within)
    with files.reading(part, reader.REMEDY):
      _check(file.values, n, count)
      for name in file.tensors:
        if name in tensors:
          raise ValueError(f'tensor {name} is in an earlier part, too')
    values = values or file.values
    tensors |= file.tensors
  with files.reading(paths[0], reader.REMEDY):
    total = values.get(TENSORS, len(tensors))
    if total != len(tensors):
      raise ValueError(
        f'{TENSORS}={keys_lib.shown(total)}, and {count} parts have '
        f'{len(tensors)} tensors'
      )
  return file._replace(path=paths[0], values=values, tensors=tensors)


def is_later(path: pathlib.Path) -> bool:
  """Returns whether a name is that of a part but the first."""
  match = NAME.fullmatch(path.name)
  return match is not None and int(match[2]) > 1


def _paths(path, count):
  """Returns the paths of all parts, which are there."""
  match = NAME.fullmatch(path.name)
  if match is None or int(match[3]) != count:
    raise errors.InputError(
      f'{path}: {COUNT}={keys_lib.shown(count)}, and the name of such a part '
      'ends in -00001-of-00003.gguf, its number and how many there are: give '
      'all parts their names'
    )
  paths = [
    path.with_name(f'{match[1]}-{n:05}-of-{match[3]}.gguf')
    for n in range(1, count + 1)
  ]
  if missing := [x.name for x in paths if not x.exists()]:
    raise errors.InputError(
      f'{path} is one of {count} parts, of which {len(missing)} are missing, '
      f'{missing[0]} first: put all into one folder'
    )
  return paths


def _check(values, n, count):
  own = values.get(NUMBER), values.get(COUNT)
  if own != (n, count):
    raise ValueError(
      f'{NUMBER}={keys_lib.shown(own[0])} and {COUNT}={keys_lib.shown(own[1])}'
      f', and part {n + 1} of {count} has {n} and {count}'
    )
