"""Space for checkpoints; errors of a full disk and of too few descriptors."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import Any

import jax

from rnn_jax import errors
from rnn_jax.runs.checkpoints import remote

NO_SPACE = (
  'no space in {} for a checkpoint: free some and run the same command again, '
  'it resumes from the last complete checkpoint ({})'
)
FULL = {
  errno.ENOSPC: 'No space left on device',
  errno.EDQUOT: 'Disk quota exceeded',
  errno.EFBIG: 'File too large',
}

FEW = {errno.EMFILE: 'Too many open files'}


def check_space(folder: str | os.PathLike[str], state: Any) -> None:
  """Raises InputError unless a tree of arrays fits on a folder's disk."""
  arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  needed = int(1.1 * arrays) + 2**20
  free = shutil.disk_usage(folder).free
  if free < needed:
    reason = f'it needs {needed:,} bytes, and {free:,} are free'
    raise errors.InputError(NO_SPACE.format(folder, reason))


@contextlib.contextmanager
def clear_errors(folder: os.PathLike[str]) -> Iterator[None]:
  """Turns errors of a full disk, a bucket or a limit into InputError."""
  try:
    with remote.clear_errors(folder):
      yield
  except errors.InputError:
    raise
  except Exception as error:
    if reason := _reason(error, FULL):
      raise errors.InputError(NO_SPACE.format(folder, reason)) from error
    if reason := _reason(error, FEW):
      remedy = errors.REMEDIES[errno.EMFILE]
      raise errors.InputError(f'{folder}: {reason}: {remedy}') from error
    if isinstance(error, OSError):
      raise errors.InputError(f'{folder}: {error.strerror or error}') from error
    raise


def _reason(error, reasons):
  """Returns the text of one of the reasons that led to an error, or None."""
  while error is not None:
    for code, text in reasons.items():
      if getattr(error, 'errno', None) == code or text in str(error):
        return text
    error = error.__cause__ or error.__context__
  return None
