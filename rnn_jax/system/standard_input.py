"""Standard input where a flag names a file: the path '-'."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
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


@contextlib.contextmanager
def as_files(inputs: Iterable[str]) -> Iterator[tuple[str, ...]]:
  """Yields [SPLIT=]PATH inputs, a file in the place of each standard input."""
  with contextlib.ExitStack() as stack:
    named = []
    for given in inputs:
      split, equals, path = given.rpartition('=')
      named.append(split + equals + stack.enter_context(as_file(path)))
    yield tuple(named)
