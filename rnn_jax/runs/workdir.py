"""A run's folder: its resolved config, and a lock against a second process.

<workdir>/config.json   what the run was started with, and `version`, that of
                        rnn_jax: a run that this one can't read is refused
<workdir>/.lock         locked (flock) while a process trains here
<workdir>/run.log       what a run of launch.experiments printed
<workdir>/checkpoints   of the run, unless `train.checkpoint_dir` names another
                        folder. That one also gets copies of the files that a
                        work folder on another machine needs to resume: KEPT
<workdir>/weights       packed parameters, of launch.quantize
"""

import contextlib
import fcntl
import glob
import json
import os
import pathlib
from typing import IO
from typing import Any

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import version
from rnn_jax.config import parts
from rnn_jax.config import values
from rnn_jax.runs import same_run
from rnn_jax.runs.checkpoints import remote
from rnn_jax.system import files

CONFIG = 'config.json'
VERSION = 'version'  # key of that file
OLDEST = '0.2.0'  # the oldest version whose runs can be read
LOCK = '.lock'
LOG = 'run.log'
TEMPORARY = 'config.json.tmp'
CHECKPOINTS = 'checkpoints'
WEIGHTS = 'weights'  # folder of packed parameters, see packed_file.py
KEPT = 'tokenizer.json', 'data.json', 'init.json'
BEGINNING = '0'  # the checkpoint of a model that launch.convert has read


def join(
  workdir: str | os.PathLike[str], config: dict[str, Any]
) -> dict[str, Any] | None:
  """Checks that a folder is new, or that of this config's run.

  A new folder of a run whose checkpoints are elsewhere gets what it needs to
  resume.

  Args:
    workdir: path of the folder, which needn't exist.
    config: of the run, open or resolved.

  Returns:
    The config that the run began with; None: nothing is trained yet.

  Raises:
    InputError: the folder isn't a run's, or belongs to a run with another
      config, or that is damaged.
  """
  _refuse_bucket(workdir)
  config = json.loads(json.dumps(config))  # tuples compare as the file's lists
  given = config['train']['checkpoint_dir']
  checkpoints = checkpoint_folder(workdir, given)
  folder = pathlib.Path(workdir)
  try:
    old = load_config(folder) if (folder / CONFIG).exists() else None
    if old is None and folder.exists():
      _refuse_if_used(folder)
    trained = has_checkpoints(checkpoints)
    if not trained and (folder / WEIGHTS).exists():
      raise errors.InputError(
        f'workdir={str(workdir)!r} has packed weights and no checkpoint: give '
        'another --workdir, and this one as --init_from'
      )
    if old:
      _check_same(folder, old, config, trained)
    if given and trained:
      theirs = _join_elsewhere(folder, given, config)
      old = old or theirs
    return old if trained else None
  except OSError as error:
    raise _unusable(folder, error) from error


def open_for_training(
  workdir: str | os.PathLike[str], config: dict[str, Any]
) -> contextlib.ExitStack:
  """Makes `workdir` the folder of this config's run, or checks that it is.

  Returns:
    Its locks, that of the folder and that of checkpoints elsewhere on this
    machine: close them when the run ends. The end of the process does so too.

  Raises:
    InputError: the folder can't be made or written, isn't a run's folder,
      belongs to a run with another config, or another process trains in it.
      The folder is then unchanged.
  """
  join(workdir, config)
  folder = pathlib.Path(workdir)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as locks:
      locks.enter_context(take_lock(folder))
      elsewhere = config['train']['checkpoint_dir']
      if elsewhere and not remote.is_remote(elsewhere):
        locks.enter_context(_lock_checkpoints(elsewhere))
      _begin(folder, config)
      return locks.pop_all()
  except OSError as error:
    raise _unusable(folder, error) from error


def load_config(workdir: str | os.PathLike[str]) -> dict[str, Any]:
  """Returns the config of the run in `workdir`, with JSON's lists.

  Raises:
    InputError: the folder doesn't exist or isn't a run's, or its config.json is
      damaged, of a version that this one can't read, or names a module that
      isn't imported yet: a run is data, and opening it runs no code.
  """
  _refuse_bucket(workdir)
  path = pathlib.Path(workdir) / CONFIG
  if not path.parent.is_dir():
    raise errors.InputError(
      f'workdir={str(workdir)!r}: no such folder: train first with '
      f'python -m launch.train --workdir={workdir}'
    )
  if not os.path.lexists(path):
    raise errors.InputError(
      f"workdir={str(workdir)!r} is not a run's folder: it has no {CONFIG}: "
      f'give the --workdir of a launch.train'
    )
  with files.reading(path, 'restore a copy, or use another --workdir'):
    config = files.read_json(path)
    if not isinstance(config, dict):
      raise ValueError('not a JSON object')
  if not {'model', 'train'} <= config.keys():
    raise errors.InputError(
      f'{path} is of another program: it has no sections model and train: '
      'give the --workdir of a launch.train; launch.convert reads models of '
      'other programs'
    )
  check_version(config.pop(VERSION, None), path)
  parts.check_known(config, str(path))
  try:
    config_lib.as_given(config)
  except errors.InputError as error:
    raise errors.InputError(
      f'{path} is damaged ({error}): restore a copy, or use another --workdir'
    ) from error
  return config


def check_version(written: str | None, path: str | os.PathLike[str]) -> None:
  """Checks that this version of rnn_jax can read a run of another one.

  Args:
    written: the version of the run, or None for one before 0.2.0.
    path: of its config, for the message.

  Raises:
    InputError: it can't; the message names both versions.
  """
  ours = version.__version__
  try:
    fits = _numbers(OLDEST) <= _numbers(str(written)) <= _numbers(ours)
  except ValueError:
    fits = False
  if not fits:
    theirs = 'a version before 0.2.0' if written is None else written
    raise errors.InputError(
      f'{path} is a run of rnn_jax {theirs}, and this is rnn_jax {ours}, which '
      f'reads those of {OLDEST} to {ours}: use that version'
    )


def dump(config: dict[str, Any]) -> str:
  """Returns the text of config.json."""
  versioned = {VERSION: version.__version__, **config}
  return json.dumps(versioned, indent=2) + '\n'


def _numbers(written):
  major, minor, patch = written.split('.')
  return int(major), int(minor), int(patch)


def checkpoint_folder(
  workdir: str | os.PathLike[str], checkpoint_dir: str
) -> str:
  """Returns the folder of a run's checkpoints: the given one, or its own.

  Raises:
    InputError: Orbax would take its path for a pattern, and not find them.
  """
  folder = checkpoint_dir or os.path.join(workdir, CHECKPOINTS)
  path = os.path.abspath(folder).replace(os.sep, '/')
  if not remote.is_remote(folder) and (glob.has_magic(path) or '\\' in path):
    raise errors.InputError(
      f'{folder!r}: checkpoints in a folder with *, ?, [ or \\ in its path '
      'cannot be read: give another --workdir or train.checkpoint_dir'
    )
  return folder


def keep_copies(workdir: str | os.PathLike[str], checkpoint_dir: str) -> None:
  """Copies the files of KEPT to checkpoints that are elsewhere.

  Raises:
    InputError: the folder can't be written.
  """
  if not checkpoint_dir:
    return
  target = remote.path(checkpoint_dir)
  with remote.clear_errors(target):
    for name in KEPT:
      path = pathlib.Path(workdir, name)
      if path.exists():
        (target / name).write_text(path.read_text(encoding='utf-8'))


def take_lock(folder: str | os.PathLike[str], name: str = '') -> IO[bytes]:
  """Returns the lock of an existing folder; close it to release it.

  Args:
    folder: its path.
    name: of the folder in a message, as 'key=value'; '': it's the workdir.

  Raises:
    InputError: another process has it.
    OSError: the folder can't be written.
  """
  folder = pathlib.Path(folder)
  lock = files.open_append(folder / LOCK)  # it outlives this call
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    lock.close()
    raise errors.InputError(
      f'{name or f"workdir={str(folder)!r}"}: another process trains in it: '
      'wait until it ends, or use another folder'
    ) from error
  except OSError as error:  # a network filesystem without locks
    logging.warning('%s cannot be locked: %s', folder, error.strerror)
  return lock


def _lock_checkpoints(given):
  """Returns the lock of a folder of checkpoints outside of a work folder."""
  folder = pathlib.Path(given)
  name = f'train.checkpoint_dir={given!r}'
  try:
    folder.mkdir(parents=True, exist_ok=True)
    return take_lock(folder, name)
  except OSError as error:
    raise errors.InputError(
      f'{name}: {error.strerror}: give a folder that can be written'
    ) from error


def has_checkpoints(folder: str | os.PathLike[str]) -> bool:
  """Returns whether a folder of checkpoints has any.

  Raises:
    InputError: it can't be reached.
  """
  remote.reach(folder, writes=True)
  path = remote.path(folder)
  with remote.clear_errors(path):
    if not path.exists():
      return False
    return any(step.name[:1].isdigit() for step in path.iterdir())


def _refuse_bucket(workdir):
  if remote.is_remote(workdir):
    raise errors.InputError(
      f'workdir={str(workdir)!r}: a work folder must be on this machine, for '
      'its lock and metrics: give --workdir=FOLDER, and for checkpoints '
      f'--config.train.checkpoint_dir={workdir}'
    )


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


def _check_same(folder, old, config, trained):
  """Raises InputError unless a config is that of the run in a folder."""
  given = config['train']['checkpoint_dir']
  before = old['train'].get('checkpoint_dir', '')
  if before != given and not trained:
    _refuse_leaving(checkpoint_folder(folder, before), given)
  steps = {path.name for path in (folder / CHECKPOINTS).glob('[0-9]*')}
  name = f'workdir={str(folder)!r}'
  if steps == {BEGINNING}:
    same_run.check_model(name, old, config)
  elif trained:
    same_run.check(name, old, config)


def _begin(folder, config):
  """Makes a locked folder that of a config's run."""
  if join(folder, config) is None:
    # Nothing is trained yet: a wrong command may be corrected.
    for name in KEPT:
      (folder / name).unlink(missing_ok=True)
  if given := config['train']['checkpoint_dir']:
    target = remote.path(given)
    with remote.clear_errors(target):
      target.mkdir(parents=True, exist_ok=True)
      (target / CONFIG).write_text(dump(config))
  old = load_config(folder) if (folder / CONFIG).exists() else None
  if old is None or values.differences(old, config):
    _write(folder, config)


def _join_elsewhere(folder, given, config):
  """Returns the config of the run with checkpoints in the folder `given`.

  A new work folder gets the files that it needs to resume.
  """
  target = remote.path(given)
  name = f'train.checkpoint_dir={given!r}'
  with remote.clear_errors(target):
    if not (target / CONFIG).exists():
      raise errors.InputError(
        f'{name} holds checkpoints, but no {CONFIG} of their run: give a new '
        "folder, or copy the run's there"
      )
    theirs = _read_elsewhere(target / CONFIG)
    check_version(theirs.pop(VERSION, None), target / CONFIG)
    parts.check_known(theirs, str(target / CONFIG))
    same_run.check(name, theirs, config)
    folder.mkdir(parents=True, exist_ok=True)
    for file in KEPT:
      if (target / file).exists() and not (folder / file).exists():
        (folder / file).write_bytes(remote.read_bytes(target / file))
  if not (folder / CONFIG).exists():
    _write(folder, theirs)
  return theirs


def _read_elsewhere(path):
  remedy = 'restore a copy, or give another train.checkpoint_dir'
  with files.reading(path, remedy):
    config = files.from_json(remote.read_bytes(path))
    if not isinstance(config, dict) or not isinstance(
      config.get('train'), dict
    ):
      raise ValueError('it is of another program')
  return config


def _refuse_leaving(before, given):
  """Raises InputError if the run's checkpoints are in another folder."""
  if has_checkpoints(before):
    raise errors.InputError(
      f'train.checkpoint_dir={given!r}: the checkpoints of this run are in '
      f'{before}: copy that folder first, or leave the key as it was'
    )


def _write(folder, config):
  temporary = folder / TEMPORARY
  temporary.unlink(missing_ok=True)  # a link would lead elsewhere
  with open(temporary, 'x', encoding='utf-8') as file:
    file.write(dump(config))
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(folder / CONFIG)
