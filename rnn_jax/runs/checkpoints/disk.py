"""Room for checkpoints, and what is raised where there is none."""

import contextlib
import errno
import os
import shutil
from typing import Any

import jax

from rnn_jax import errors
from rnn_jax.runs.checkpoints import remote

NO_SPACE = (
  'no space in {} for a checkpoint: make room and give the same command again, '
  'it goes on from the last complete checkpoint ({})'
)
FULL = {
  errno.ENOSPC: 'No space left on device',
  errno.EDQUOT: 'Disk quota exceeded',
  errno.EFBIG: 'File too large',
}


def check_space(folder: str | os.PathLike, state: Any) -> None:
  """Raises InputError unless a tree of arrays has room in a folder."""
  arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  needed = int(1.1 * arrays) + 2**20
  free = shutil.disk_usage(folder).free
  if free < needed:
    reason = f'it needs {needed:,} bytes, {free:,} are free'
    raise errors.InputError(NO_SPACE.format(folder, reason))


@contextlib.contextmanager
def clear_errors(folder: os.PathLike):
  """Turns what a full disk or a bucket raises, however wrapped, into
  InputError."""
  try:
    with remote.clear_errors(folder):
      yield
  except errors.InputError:
    raise
  except Exception as error:
    if reason := _is_full(error):
      raise errors.InputError(NO_SPACE.format(folder, reason)) from error
    if isinstance(error, OSError):
      raise errors.InputError(f'{folder}: {error.strerror or error}') from error
    raise


def _is_full(error):
  while error is not None:
    for code, text in FULL.items():
      if getattr(error, 'errno', None) == code or text in str(error):
        return text
    error = error.__cause__ or error.__context__
  return None
