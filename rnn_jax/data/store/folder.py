"""Where token files are, and by what name.

`data.cache` names the folder; 'auto' is `tokens` in the user's cache, for data
of MIN_BYTES or more, or MIN_ENCODED_BYTES if ids aren't bytes, and '' is none.
A folder in it is a sealed one: damaged, it is built again. A lock keeps other
processes from building the same.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import time
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.store import sealed
from rnn_jax.native import cache
from rnn_jax.system import activity
from rnn_jax.system import files

# Bytes of raw files that are kept: fewer are read, or encoded, fast enough.
MIN_BYTES, MIN_ENCODED_BYTES = 64 * 2**20, 2**20
AUTO = 'auto'
SAMPLES = 256  # blocks of the raw files that are part of their digest
BLOCK = 8192  # bytes
UNUSED_SECONDS = 30 * 24 * 3600


def root(data: config_lib.Data, raw_bytes: int) -> pathlib.Path | None:
  """Returns the folder that `data.cache` names; None: nothing is kept.

  Args:
    data: section `data` of the config.
    raw_bytes: of the files of the corpus.

  Raises:
    InputError: the folder that the config names can't be made.
  """
  least = MIN_BYTES if data.tokenizer == 'bytes' else MIN_ENCODED_BYTES
  if not data.cache or (data.cache == AUTO and raw_bytes < least):
    return None
  if data.cache != AUTO:
    path = pathlib.Path(data.cache).absolute()
    try:
      path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      errors.refuse(
        'data.cache',
        data.cache,
        f"the folder can't be made ({error.strerror}): name another, or '' for "
        'none',
      )
    return path
  try:
    path = cache.folder('tokens')
  except cache.UnavailableError as error:
    logging.warning('the tokens of the data are not kept: %s', error)
    return None
  _prune(path)
  return path


def digest(
  given: Mapping[str, Iterable[str]], options: Mapping[str, Any]
) -> str:
  """Returns a name for what options make of raw files.

  It depends on the relative paths, the sizes and the times of change of the
  files, and on SAMPLES blocks of their content.

  Args:
    given: {what they are for: paths}.
    options: JSON-ready.
  """
  listed: dict[str, list[tuple[str, int, int]]] = {}
  blocks = hashlib.sha256()
  for key, each in given.items():
    paths = [*each]
    above = os.path.commonpath([*map(os.path.dirname, paths)]) if paths else ''
    states = [os.stat(path) for path in paths]
    listed[key] = [
      (os.path.relpath(path, above), state.st_size, state.st_mtime_ns)
      for path, state in zip(paths, states, strict=True)
    ]
    _sample(blocks, paths, [state.st_size for state in states])
  made_of = [sealed.FORMAT, options, listed, blocks.hexdigest()]
  text = files.to_json(made_of, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:32]


def total_bytes(given: Mapping[str, Iterable[str]]) -> int:
  """Returns the bytes of the files of `digest`."""
  return sum(os.path.getsize(p) for paths in given.values() for p in paths)


def keep(
  where: pathlib.Path, name: str, build: sealed.Build
) -> sealed.Folder | None:
  """Returns a folder; what isn't there, or is damaged, is built first.

  Args:
    where: the folder that it is in.
    name: its own.
    build: see sealed.write.

  Returns:
    None if the disk doesn't take it, after a warning.

  Raises:
    InputError: it belongs to another user.
  """
  path = where / name
  if (kept := _opened(path)) is not None:
    return kept
  try:
    with activity.doing('waiting for the process that writes token files'):
      lock = contextlib.ExitStack()
      lock.enter_context(cache.lock(where, {'folder': name}))
    with lock:
      if (kept := _opened(path, says=True)) is None:
        sealed.remove(path)
        kept = sealed.write(path, build)
  except OSError as error:
    logging.warning(
      '%s cannot be written (%s): the data are read and tokenized at each '
      'start: free some space, or name another folder in data.cache',
      path,
      error.strerror or error,
    )
    return None
  return kept


def _opened(path, says=False):
  """Returns the folder; None: there is none, or not what was written."""
  try:
    kept = sealed.open_folder(path)
  except FileNotFoundError:
    return None
  except sealed.DamagedError as error:
    if says:
      logging.warning('%s: token files are written again', error.args[0])
    return None
  with contextlib.suppress(OSError):  # it may be read-only
    os.utime(path)  # so that it isn't pruned
  return kept


def _sample(blocks, paths, sizes):
  """Adds evenly spaced blocks of the files, as one after the other."""
  total, before, n = sum(sizes), 0, 0
  for at in (total * k // SAMPLES for k in range(SAMPLES)):
    while at >= before + sizes[n]:
      before, n = before + sizes[n], n + 1
    with open(paths[n], 'rb') as file:
      file.seek(at - before)
      blocks.update(file.read(BLOCK))


def _prune(where):
  """Removes folders that no process has used for long."""
  now = time.time()
  for path in (*where.iterdir(), *where.glob(f'*/{cache.BUILDING}*')):
    with contextlib.suppress(OSError):
      age = now - path.stat().st_mtime
      abandoned = path.name.startswith(cache.BUILDING)
      limit = cache.ABANDONED_SECONDS if abandoned else UNUSED_SECONDS
      if path.is_dir() and age > limit:
        shutil.rmtree(path, ignore_errors=True)
