"""Compiled programs on disk, so that the next process needn't compile them.

    from rnn_jax.system import compile_cache

    compile_cache.keep()

Every command calls it; so may a program that uses rnn_jax as a library. It
turns on JAX's persistent compilation cache. The folder is, in this order: the
argument, the one that JAX has (jax_compilation_cache_dir, or
$JAX_COMPILATION_CACHE_DIR), and ~/.cache/rnn_jax/jaxlib-VERSION-PROCESSOR, or
in $XDG_CACHE_HOME. Programs that compile in less than SHORTEST seconds aren't
kept, or in $JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS.

JAX runs what the file of a program's key holds. Here each file also has a
digest of the key and the program: one that is damaged, cut short or another's
is compiled again, with a line.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import stat
from typing import Any

from absl import logging

from rnn_jax.system import environment

_OPTION = 'jax_compilation_cache_dir'
_SHORTEST_OPTION = 'jax_persistent_cache_min_compile_time_secs'
SHORTEST = 0.3  # seconds of a compilation that is worth a file
SUFFIX = '-checked'  # of the keys of programs that have a digest
DIGEST = hashlib.sha256().digest_size  # bytes, before the program


def keep(folder: str | None = None) -> str:
  """Turns on the persistent compilation cache of this process.

  Args:
    folder: where programs are kept; '': nowhere, the cache is off; None: where
      JAX keeps them already, else the user's own folder.

  Returns:
    The folder; '' if programs aren't kept.
  """
  import jax
  from jax.experimental.compilation_cache import compilation_cache

  before = getattr(jax.config, _OPTION)
  if folder is None:
    folder = before
  if folder is None:
    folder = own_folder(jax.lib.__version__)
  if _SHORTEST_OPTION.upper() not in os.environ:
    jax.config.update(_SHORTEST_OPTION, SHORTEST)
  if _check_programs() or (folder or None) != before:
    jax.config.update(_OPTION, folder or None)
    # JAX looks for a folder only when it compiles for the first time.
    compilation_cache.reset_cache()
  return folder


class Checked:
  """JAX's cache of programs, each with a digest of its key and itself."""

  def __init__(self, cache: Any) -> None:
    """Takes the cache of JAX."""
    self._cache = cache
    self._path = cache._path if hasattr(cache, '_path') else cache.path

  def get(self, key: str) -> bytes | None:
    """Returns a program; None: there is none, or it isn't the key's."""
    own = key + SUFFIX
    found = self._cache.get(own)
    if found is None:
      return None
    digest, program = found[:DIGEST], found[DIGEST:]
    if digest == _digest(key, program):
      return program
    logging.warning(
      'the compiled program %s in %s is damaged or another one: it is '
      'compiled again',
      own,
      self._path,
    )
    with contextlib.suppress(OSError):
      pathlib.Path(str(self._path), f'{own}-cache').unlink()
    return None

  def put(self, key: str, value: bytes) -> None:
    """Keeps a program."""
    self._cache.put(key + SUFFIX, _digest(key, value) + value)


def _digest(key, program):
  return hashlib.sha256(key.encode() + b'\0' + program).digest()


def _check_programs():
  """Makes JAX check its programs. Returns whether it didn't before."""
  try:
    from jax._src import compilation_cache as internal

    make = internal.get_file_cache
  except (ImportError, AttributeError):  # another version of JAX
    return False
  if getattr(make, '__name__', '') == 'get_checked':
    return False

  def get_checked(path):
    found = make(path)
    return found and (Checked(found[0]), found[1])

  internal.get_file_cache = get_checked
  return True


def own_folder(version: str) -> str:
  """Returns the user's program cache for this processor; '': no cache.

  Machines with different processors may share a home, hence one folder for
  each processor. Programs are code: a folder that other users can write to
  isn't used.

  Args:
    version: of jaxlib.
  """
  home = environment.cache_home()
  if not home:
    return ''
  name = f'jaxlib-{version}-{processor()}'
  folder = pathlib.Path(home, 'rnn_jax', name)
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
  except OSError:
    return ''  # the home is read-only or missing
  if not hasattr(os, 'getuid'):
    return str(folder)
  if (
    stat.S_ISDIR(status.st_mode)
    and status.st_uid == os.getuid()
    and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
  ):
    return str(folder)
  logging.warning(
    'compiled programs are not cached: other users can write to %s: delete '
    'it, or name a folder with --compilation_cache',
    folder,
  )
  return ''


def processor() -> str:
  """Returns a digest of the CPU's model and features."""
  names = [platform.machine(), platform.processor()]
  with contextlib.suppress(OSError):
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith(('model name', 'flags', 'Features', 'CPU part')):
        names.append(line)
  text = '\n'.join(sorted(set(names)))
  return hashlib.sha256(text.encode()).hexdigest()[:12]
