"""The user's folder of compiled libraries.

A library is code. So the folder and its files must be the user's own and not
writable by others, and a file's name holds the digest of its content: one that
is truncated, damaged or of another key is never loaded. A file is moved into
the folder when it is whole, so several processes may build at once.
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

from rnn_jax import files

try:
  import fcntl
except ImportError:  # not on Windows
  fcntl = None

UNUSED_SECONDS = 30 * 24 * 3600
ABANDONED_SECONDS = 24 * 3600


class UnavailableError(Exception):
  """There is no library here; the text says why, in one line."""


def root() -> pathlib.Path:
  """Returns $RNN_JAX_CACHE, else rnn_jax in the user's folder of caches.

  Raises:
    UnavailableError: the user has no home folder.
  """
  if named := os.environ.get('RNN_JAX_CACHE'):
    return pathlib.Path(named).absolute()
  home = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  if not os.path.isabs(home):
    raise UnavailableError('there is no home folder: set RNN_JAX_CACHE')
  return pathlib.Path(home, 'rnn_jax')


def folder() -> pathlib.Path:
  """Returns the folder of libraries, made if it is not there.

  Raises:
    UnavailableError: it can't be made, or others can write in it.
  """
  path = root() / 'native'
  try:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
  except OSError as error:
    raise UnavailableError(
      f"{path} can't be made ({error.strerror}): set RNN_JAX_CACHE"
    ) from None
  if not stat.S_ISDIR(found.st_mode) or not _is_own(found):
    raise UnavailableError(
      f'others can write {path}: delete it, or set RNN_JAX_CACHE'
    )
  return path


def digest(key: dict) -> str:
  """Returns the name of a key."""
  text = json.dumps(key, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def find(where: pathlib.Path, key: dict) -> pathlib.Path | None:
  """Returns a key's library, whole and the user's own; removes damaged ones.

  Raises:
    UnavailableError: others can write the file.
  """
  for path in sorted(where.glob(f'{digest(key)}-*.so')):
    try:
      if not stat.S_ISREG((found := path.lstat()).st_mode) or not _is_own(
        found
      ):
        raise UnavailableError(f'others can write {path}: delete it')
      if path.name == _name(key, path):
        with contextlib.suppress(OSError):  # a folder that is read-only
          os.utime(path)  # so that it isn't pruned
        return path
      path.unlink()
    except FileNotFoundError:
      continue  # another process has removed it
  return None


def keep(built: pathlib.Path, where: pathlib.Path, key: dict) -> pathlib.Path:
  """Moves a library that was built in `where` to its place, and prunes."""
  built.chmod(0o700)
  path = where / _name(key, built)
  os.replace(built, path)
  files.write_whole(where / f'{digest(key)}.json', json.dumps(key, indent=2))
  _prune(where)
  return path


@contextlib.contextmanager
def workspace(where: pathlib.Path) -> Iterator[pathlib.Path]:
  """A folder to build in, on the same file system."""
  with tempfile.TemporaryDirectory(
    prefix='building-', dir=where, ignore_cleanup_errors=True
  ) as path:
    yield pathlib.Path(path)


@contextlib.contextmanager
def lock(where: pathlib.Path, key: dict) -> Iterator[None]:
  """Waits while another process builds the same; without locks it doesn't."""
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


def _is_own(found):
  if not hasattr(os, 'getuid'):
    return True
  writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
  return found.st_uid == os.getuid() and not writable


def _prune(where):
  """Removes what no process has used for long."""
  now = time.time()
  for path in where.iterdir():
    with contextlib.suppress(OSError):
      age = now - path.lstat().st_mtime
      if path.name.startswith('building-') and age > ABANDONED_SECONDS:
        shutil.rmtree(path, ignore_errors=True)
      elif path.suffix == '.so' and age > UNUSED_SECONDS:
        path.unlink()
        name = path.name.partition('-')[0]
        (where / f'{name}.json').unlink(missing_ok=True)
