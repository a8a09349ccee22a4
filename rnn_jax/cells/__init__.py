"""Cells: a file is a cell, and its name is what a config calls it.

`base` is what all of them share, `parts` what some do. The variable
RNN_JAX_CELLS names further folders of such files, joined as in PATH.
"""

import os
import pathlib

from rnn_jax import errors

VARIABLE = 'RNN_JAX_CELLS'


def folders() -> list[str]:
  """Returns the folders that the variable names.

  Raises:
    InputError: there is no such folder, or a cell of it has the name of one
      that is here.
  """
  found = []
  for given in filter(None, os.environ.get(VARIABLE, '').split(os.pathsep)):
    folder = pathlib.Path(given).absolute()
    if not folder.is_dir():
      raise errors.InputError(f'{VARIABLE}={given!r}: there is no such folder')
    taken = {file.name for path in __path__ for file in _files(path)}
    for file in _files(folder):
      if file.name in taken:
        raise errors.InputError(
          f'{VARIABLE}={given!r}: {file.name} is the name of a file of '
          'rnn_jax/cells: give it another one'
        )
    found.append(str(folder))
  return found


def _files(folder):
  return pathlib.Path(folder).glob('[!_]*.py')


__path__ += folders()
