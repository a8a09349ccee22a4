"""Compiled programs on disk, so that the next process needn't compile them.

    from rnn_jax import compile_cache

    compile_cache.keep()

Every command calls it; so may a program that uses rnn_jax as a library. It
turns on JAX's persistent compilation cache. The folder is, in this order: the
argument, the one that JAX has (jax_compilation_cache_dir, or
$JAX_COMPILATION_CACHE_DIR), and ~/.cache/rnn_jax/jaxlib-VERSION-PROCESSOR, or
in $XDG_CACHE_HOME.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import stat

from absl import logging

from rnn_jax import environment

_OPTION = 'jax_compilation_cache_dir'
SHORTEST = 0.3  # seconds of a compilation that is worth a file


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
  jax.config.update('jax_persistent_cache_min_compile_time_secs', SHORTEST)
  if (folder or None) != before:
    jax.config.update(_OPTION, folder or None)
    # JAX looks for a folder only when it compiles for the first time.
    compilation_cache.reset_cache()
  return folder


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
