"""Errors that a user can fix; a command prints them as one line."""

import errno
import os
import re
from typing import Any
from typing import NoReturn

# How XLA, its libraries, C++ and Python say that there is no memory left.
# YNNPACK, which jax 0.12 multiplies with on a CPU, has no status of its own for
# it: a plain error is one, a wrong parameter is not.
OUT_OF_MEMORY = re.compile(
  'RESOURCE_EXHAUSTED|out of memory|allocate of <|bad_alloc|MemoryError'
  r'|YNNPACK operation failed(?!:? *(deprecated|invalid|unsupported))',
  re.I,
)
REMEDIES = {
  errno.ENOSPC: 'free some space',
  errno.EDQUOT: 'free some space',
  errno.EFBIG: 'give a disk or a limit that permits it',
  errno.EROFS: 'give a folder that can be written',
  errno.EACCES: 'give a file or a folder that you may use',
  errno.EPERM: 'give a file or a folder that you may use',
  errno.ENAMETOOLONG: 'give a shorter name',
  errno.ELOOP: 'its links lead to itself',
  errno.EMFILE: 'raise the limit, ulimit -n',
  errno.ENFILE: 'end other programs, the machine has no files left',
  errno.EIO: 'look after the disk',
  errno.ESTALE: 'mount the file system again',
}


class InputError(ValueError):
  """Bad input; the message names the argument, its value and the remedy."""


def refuse(argument: str, value: Any, remedy: str) -> NoReturn:
  """Raises an InputError about the value of an argument."""
  raise InputError(f'{argument}={value!r}: {remedy}')


def explain(error: BaseException) -> str:
  """Returns the message of an error that a user can fix; '': it's a defect.

  That is an InputError, and what the machine refuses wherever it happens: a
  full or forbidden disk, memory that runs out, an implementation that needs
  another device.
  """
  if isinstance(error, InputError):
    return str(error)
  if isinstance(error, FileNotFoundError) and not _has_folder():
    return 'the current folder was deleted: change to another one'
  if isinstance(error, OSError) and error.errno in REMEDIES:
    where = f'{error.filename}: ' if error.filename else ''
    return f'{where}{os.strerror(error.errno)}: {REMEDIES[error.errno]}'
  if isinstance(error, NotImplementedError) and str(error).startswith('impl='):
    return f'recurrence.{error}'  # an op that this machine can't run
  text = f'{type(error).__name__}: {error}'
  if isinstance(error, (MemoryError, RuntimeError)) and (
    OUT_OF_MEMORY.search(text)
  ):
    reason = f' ({first_line(error)})' if str(error) else ''
    return (
      f"the machine's memory ran out{reason}: lower the batch size or the "
      'length of rows'
    )
  return ''


def first_line(error: BaseException, longest: int = 200) -> str:
  """Returns the first line of an error's message, or its type: for a reason."""
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return lines[0][:longest].rstrip('.:')


def _has_folder():
  try:
    return bool(os.getcwd())
  except FileNotFoundError:
    return False
