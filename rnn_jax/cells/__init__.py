"""Cells: each file is a cell, and a config chooses it by the file's name.

`base` is the contract of all cells, `parts` is shared by some. The variable
RNN_JAX_CELLS names further folders of cells, joined as in PATH.
"""

import os
import pathlib

from rnn_jax import errors

VARIABLE = 'RNN_JAX_CELLS'


def folders() -> list[str]:
  """Returns the folders that the variable names.

  Raises:
    InputError: a folder doesn't exist, or one of its cells has the name of a
      file of rnn_jax/cells.
  """
  paths = []
  for name in filter(None, os.environ.get(VARIABLE, '').split(os.pathsep)):
    folder = pathlib.Path(name).absolute()
    if not folder.is_dir():
      errors.refuse(VARIABLE, name, 'there is no such folder')
    taken = {file.name for path in __path__ for file in _files(path)}
    for file in _files(folder):
      if file.name in taken:
        raise errors.InputError(
          f'{VARIABLE}={name!r}: rnn_jax/cells has a file {file.name} as well: '
          'rename yours'
        )
    paths.append(str(folder))
  return paths


def _files(folder):
  return pathlib.Path(folder).glob('[!_]*.py')


__path__ += folders()
