"""The user's folder of compiled libraries.

A library is code. So the folder and its files must belong to the user and not
be writable by others, and a file's name holds the digest of its content: a
truncated or damaged file, or one of another key, is never loaded. A file is
moved into the folder when it is complete, so several processes may build at
once.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator

from rnn_jax.system import environment
from rnn_jax.system import files

try:
  import fcntl
except ImportError:  # not on Windows
  fcntl = None  # type: ignore[assignment]

UNUSED_SECONDS = 30 * 24 * 3600
ABANDONED_SECONDS = 24 * 3600
BUILDING = 'building-'  # what the name of a temporary folder begins with


class UnavailableError(Exception):
  """The library isn't available; the message says why, in one line."""


def root() -> pathlib.Path:
  """Returns $RNN_JAX_CACHE, else rnn_jax in the user's cache folder.

  Raises:
    UnavailableError: the user has no home folder.
  """
  if named := os.environ.get('RNN_JAX_CACHE'):
    return pathlib.Path(named).absolute()
  home = environment.cache_home()
  if not home:
    raise UnavailableError('there is no home folder: set RNN_JAX_CACHE')
  return pathlib.Path(home, 'rnn_jax')


def folder(name: str = 'native') -> pathlib.Path:
  """Returns the folder of libraries, created if it doesn't exist.

  Args:
    name: another folder of the user's cache.

  Raises:
    UnavailableError: it can't be created, or others can write to it.
  """
  path = root() / name
  try:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
  except OSError as error:
    raise UnavailableError(
      f"{path} can't be created ({error.strerror}): set RNN_JAX_CACHE"
    ) from None
  if not stat.S_ISDIR(status.st_mode) or not is_own(status):
    raise UnavailableError(
      f'others can write to {path}: delete it, or set RNN_JAX_CACHE'
    )
  return path


def digest(key: dict) -> str:
  """Returns the hexadecimal name of a key, 16 digits."""
  text = json.dumps(key, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def find(where: pathlib.Path, key: dict) -> pathlib.Path | None:
  """Returns a key's intact library or None; removes damaged ones.

  Raises:
    UnavailableError: others can write to the file.
  """
  for path in sorted(where.glob(f'{digest(key)}-*.so')):
    try:
      status = path.lstat()
      if not stat.S_ISREG(status.st_mode) or not is_own(status):
        raise UnavailableError(f'others can write to {path}: delete it')
      if path.name == _name(key, path):
        with contextlib.suppress(OSError):  # a read-only folder
          os.utime(path)  # so that it isn't pruned
        return path
      path.unlink()
    except FileNotFoundError:
      continue  # another process has removed it
  return None


def keep(built: pathlib.Path, where: pathlib.Path, key: dict) -> pathlib.Path:
  """Moves a library built in `where` to its place, and prunes old ones."""
  built.chmod(0o700)
  path = where / _name(key, built)
  os.replace(built, path)
  files.write_whole(where / f'{digest(key)}.json', json.dumps(key, indent=2))
  _prune(where)
  return path


@contextlib.contextmanager
def workspace(where: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a temporary folder to build in, on the same file system."""
  with tempfile.TemporaryDirectory(
    prefix=BUILDING, dir=where, ignore_cleanup_errors=True
  ) as path:
    yield pathlib.Path(path)


@contextlib.contextmanager
def lock(where: pathlib.Path, key: dict) -> Iterator[None]:
  """Waits while another process builds the same key, if files can be locked."""
  with (where / f'{digest(key)}.lock').open('w') as file:
    if fcntl is not None:
      with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)
    yield


def sha256(path: pathlib.Path) -> str:
  """Returns the digest of a file's content."""
  return hashlib.sha256(path.read_bytes()).hexdigest()


def _name(key, content):
  return f'{digest(key)}-{sha256(content)[:32]}.so'


def is_own(status: os.stat_result) -> bool:
  """Returns whether a file is the user's, and others can't write to it."""
  if not hasattr(os, 'getuid'):
    return True
  writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
  return status.st_uid == os.getuid() and not writable


def _prune(where):
  """Removes files that no process has used for long."""
  now = time.time()
  for path in where.iterdir():
    with contextlib.suppress(OSError):
      age = now - path.lstat().st_mtime
      if path.name.startswith(BUILDING) and age > ABANDONED_SECONDS:
        shutil.rmtree(path, ignore_errors=True)
      elif path.suffix == '.so' and age > UNUSED_SECONDS:
        path.unlink()
        name = path.name.partition('-')[0]
        (where / f'{name}.json').unlink(missing_ok=True)
