"""A run's folder: its resolved config, and the lock that keeps it to one run.

<workdir>/config.json   what the run was started with
<workdir>/.lock         locked (flock) for as long as a process trains here
<workdir>/run.log       what a run of launch.experiments printed, if it is one
"""

import fcntl
import fnmatch
import json
import os
import pathlib
import typing

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors

CONFIG = 'config.json'
LOCK = '.lock'
LOG = 'run.log'
TEMPORARY = 'config.json.tmp'
# A run may go on with another value of these: they don't touch its result.
FREE = (
  'data.workers',
  'data.prefetch',
  'mesh.*',
  'optimizer.offload',
  'train.log_every',
  'train.checkpoint_every',
  'train.keep_checkpoints',
  'sample.*',
)


def open_for_training(
  workdir: str | os.PathLike, config: dict
) -> typing.IO[str]:
  """Makes `workdir` the folder of this config's run, or checks that it is.

  Returns:
    The lock, an open file: close it when the run ends. The end of the process
    closes it too.

  Raises:
    InputError: the folder can't be made or written, is no run's folder,
      belongs to a run with another config, or another process trains in it.
      Nothing in it has been changed then.
  """
  folder = pathlib.Path(workdir)
  config = json.loads(json.dumps(config))  # tuples compare as the file's lists
  try:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CONFIG).exists():
      _refuse_if_used(folder)
    lock = take_lock(folder)
  except OSError as error:
    raise _unusable(folder, error) from error
  try:
    _settle_config(folder, config)
  except OSError as error:
    lock.close()
    raise _unusable(folder, error) from error
  except BaseException:
    lock.close()
    raise
  return lock


def load_config(workdir: str | os.PathLike) -> dict:
  """Returns the config of the run in `workdir`, with JSON's lists.

  Raises:
    InputError: there is no such folder, it is no run's folder, or its
      config.json is damaged.
  """
  path = pathlib.Path(workdir) / CONFIG
  if not path.parent.is_dir():
    raise errors.InputError(
      f'workdir={str(workdir)!r}: no such folder: train first with '
      f'python -m launch.train --workdir={workdir}'
    )
  try:
    config = json.loads(path.read_text(encoding='utf-8'))
    if not isinstance(config, dict):
      raise ValueError('not a JSON object')
  except FileNotFoundError as error:
    raise errors.InputError(
      f"workdir={str(workdir)!r} is not a run's folder, it has no {CONFIG}: "
      f'give the --workdir of a launch.train'
    ) from error
  except OSError as error:
    raise errors.InputError(f'{path}: {error.strerror}') from error
  except ValueError as error:
    raise errors.InputError(
      f'{path} is damaged ({error}): put back a copy, or use another --workdir'
    ) from error
  return config


def take_lock(folder: str | os.PathLike) -> typing.IO[str]:
  """Returns the lock of a folder that exists; close it to give it back.

  Raises:
    InputError: another process has it.
    OSError: the folder can't be written.
  """
  folder = pathlib.Path(folder)
  lock = open(folder / LOCK, 'a')  # noqa: SIM115 (it outlives this call)
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    lock.close()
    raise errors.InputError(
      f'workdir={str(folder)!r}: another process trains in it: wait for its '
      f'end, or use another --workdir'
    ) from error
  except OSError as error:  # a network filesystem without locks
    logging.warning('%s cannot be locked: %s', folder, error.strerror)
  return lock


def fixed_differences(old: dict, new: dict) -> list[str]:
  """Lists `key: old -> new` where `new` is the config of another run."""
  lines = config_lib.differences(old, new)
  return [line for line in lines if not _is_free(line)]


def _unusable(folder, error):
  reason = 'it is a file' if folder.is_file() else error.strerror
  return errors.InputError(
    f'workdir={str(folder)!r}: {reason}: give a folder that can be written'
  )


def _refuse_if_used(folder):
  names = sorted(set(os.listdir(folder)) - {LOCK, TEMPORARY, LOG})
  if names:
    raise errors.InputError(
      f"workdir={str(folder)!r} is not a run's folder: it has no {CONFIG} but "
      f'{", ".join(names[:3])}: give a new or an empty folder'
    )


def _settle_config(folder, config):
  if not (folder / CONFIG).exists():
    _write(folder, config)
    return
  lines = config_lib.differences(load_config(folder), config)
  if not any((folder / 'checkpoints').glob('[0-9]*')):
    (folder / 'memory.json').unlink(missing_ok=True)
    # Nothing is trained yet: a command with a mistake may be given again.
    (folder / 'tokenizer.json').unlink(missing_ok=True)
  elif fixed := fixed_differences(load_config(folder), config):
    listed = '\n  '.join(fixed)
    raise errors.InputError(
      f'workdir={str(folder)!r} holds a run with another config '
      f'(its value -> the one given):\n  {listed}\n'
      f'restore these values, or use another --workdir'
    )
  if lines:
    _write(folder, config)


def _is_free(line):
  key = line.partition(':')[0]
  return any(fnmatch.fnmatchcase(key, pattern) for pattern in FREE)


def _write(folder, config):
  temporary = folder / TEMPORARY
  with open(temporary, 'w', encoding='utf-8') as file:
    file.write(json.dumps(config, indent=2) + '\n')
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(folder / CONFIG)
