"""Where the commands and configs are that come with rnn_jax.

In a checkout, launch/ and configs/ lie next to rnn_jax/; a wheel has them in
rnn_jax/commands/, as their names are too general for site-packages.
"""

import difflib
import pathlib
import re

from rnn_jax import errors

_PACKAGE = pathlib.Path(__file__).parents[1]
INSTALLED = (_PACKAGE / 'commands').is_dir()  # else this is a checkout
# The folder that holds launch/ and configs/.
ROOT = _PACKAGE / 'commands' if INSTALLED else _PACKAGE.parent
CONFIGS = 'configs'
GRIDS = 'configs/experiments'


def names(folder: str = CONFIGS) -> list[str]:
  """Returns the names of the Python files in a folder of ROOT, sorted."""
  files = (ROOT / folder).glob('[!_]*.py')
  return sorted(path.stem for path in files)


def find(argument: str, given: str, folder: str = CONFIGS) -> str:
  """Returns the path of a Python file that a flag names.

  Args:
    argument: the flag, for the error.
    given: a path, or the name of a file in `folder` without .py. A name never
      means a file of the current folder.
    folder: CONFIGS or GRIDS.

  Raises:
    InputError: no such file comes with rnn_jax, or a missing path is close to
      the name of one.
  """
  known = names(folder)
  if re.fullmatch(r'[\w-]+', given):
    if given in known:
      return str(ROOT / folder / f'{given}.py')
    raise errors.InputError(
      f'{argument}={given!r}: no such name: {_nearest(given, known)}'
    )
  path = pathlib.Path(given)
  if path.suffix == '.py' and not path.exists():
    if close := difflib.get_close_matches(path.stem, known, 1):
      raise errors.InputError(
        f'{argument}={given!r}: no such file: did you mean '
        f'{argument}={close[0]}, which comes with rnn_jax?'
      )
  return given


def _nearest(name, known):
  if close := difflib.get_close_matches(name, known, 1):
    return f'did you mean {close[0]!r}?'
  return f'choose one of {known}, or give the path of your own file'
