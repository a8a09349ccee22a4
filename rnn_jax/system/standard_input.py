"""Standard input where a flag names a file: the path '-'."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

from rnn_jax.system import activity

DASH = '-'
NAME = 'standard input'  # in messages


@contextlib.contextmanager
def as_file(path: str, suffix: str = '') -> Iterator[str]:
  """Yields a path that can be read twice; a temporary file for '-'.

  Args:
    path: of a file, or '-'.
    suffix: of the temporary file's name, as '.py'.
  """
  if path != DASH:
    yield path
    return
  with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, NAME.replace(' ', '_') + suffix)
    with open(name, 'wb') as file, activity.waiting():
      shutil.copyfileobj(sys.stdin.buffer, file)
    yield name
