"""Weights & Biases: a run in WORKDIR/wandb, and on its server after a login.

Without a login nothing leaves this machine; `wandb sync WORKDIR/wandb/*run-*`
uploads it later. The package's variables apply: WANDB_MODE, WANDB_PROJECT,
WANDB_ENTITY and the like. A resumed run has the same id, so that the server
shows one run. Metrics are plotted by the column `step`: rows that a killed
process had written are there twice.
"""

import importlib.util
import os
import pathlib
import re
import uuid
from collections.abc import Mapping
from typing import Any

from rnn_jax import errors
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import files

PROJECT = 'rnn_jax'
ID = 'wandb/id'
MODE = 'WANDB_MODE'


def check() -> None:
  """Checks that the package is installed.

  Raises:
    InputError: it isn't.
  """
  if importlib.util.find_spec('wandb') is None:
    errors.refuse(
      'metrics.writers',
      'wandb',
      "it needs a package: pip install 'rnn_jax[wandb]', or leave it out",
    )


class Writer:
  """Logs rows; the package sends them in the background."""

  def __init__(self, workdir: str | os.PathLike[str]) -> None:
    import wandb

    folder = pathlib.Path(workdir)
    settings = wandb.Settings(
      console='off', save_code=False, disable_git=True, silent=True
    )
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', PROJECT),
      name=os.environ.get('WANDB_NAME', folder.resolve().name),
      id=_id(folder),
      resume='allow',
      dir=folder,
      config=workdir_lib.load_config(folder),
      mode=_mode(wandb),
      settings=settings,
    )
    self._run.define_metric('*', step_metric='step')

  def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Logs a row."""
    row = {f'{split}/{name}': value for name, value in values.items()}
    self._run.log({'step': step, **row})

  def close(self) -> None:
    self._run.finish()


def make(workdir: str | os.PathLike[str], step: int) -> Writer:
  """Returns the writer of a run."""
  del step  # the id continues it
  return Writer(workdir)


def _mode(wandb):
  """Returns the mode to ask for; None: the package reads its variable."""
  if os.environ.get(MODE):
    return None
  return 'online' if wandb.login(prompt=False) else 'offline'


def _id(folder):
  """Returns the run's id, which is made once."""
  path = folder / ID
  try:
    with path.open(encoding='utf-8') as file:
      known = file.read(64)
  except (OSError, UnicodeError):
    known = ''
  if re.fullmatch(r'[0-9a-f]{32}', known):
    return known
  path.parent.mkdir(exist_ok=True)
  made = uuid.uuid4().hex
  files.write_whole(path, made)
  return made
