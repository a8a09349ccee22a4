"""Which run the first parameters of a run are from: WORKDIR/init.json.

    {"run": "/home/me/runs/language", "checkpoint": "best", "optimizer": false,
     "step": 400, "sha256": "5d...", "taken": ["body/..."], "new": ["head/..."]}

`sha256` is that of the checkpoint's seal, which has the digest of each of its
files. A run that resumes has parameters of its own, and reads no other run.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import flax.traverse_util

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import files

NAME = 'init.json'
TYPES = {
  'run': (str,),
  'checkpoint': (str, int),
  'optimizer': (bool,),
  'step': (int,),
  'sha256': (str,),
  'taken': (list,),
  'new': (list,),
}
OF_MODEL = ('model', 'cell', 'vision')  # sections that parameters depend on


@dataclasses.dataclass(frozen=True)
class Init:
  """What a new run begins with.

  Attributes:
    run: the folder of another run.
    checkpoint: of it: 'best', 'latest' or a step.
    optimizer: whether the state of its optimizer is taken as well.
  """

  run: str
  checkpoint: str = 'best'
  optimizer: bool = False

  def asked(self) -> dict[str, Any]:
    """Returns it as init.json has it."""
    return dataclasses.asdict(self) | {'run': os.path.abspath(self.run)}


def take_model(
  raw: Any,
  init: Init,
  workdir: str | os.PathLike | None,
  checkpoint_dir: str,
) -> None:
  """Gives a config the model of the run that it begins with.

  A run that has begun has its model in its own config.json, and the other run
  isn't read.

  Args:
    raw: the ConfigDict of a config file, which is changed: sections OF_MODEL
      and the kind of tokenizer become those of the run.
    init: what the command asks for.
    workdir: the run's folder, or None.
    checkpoint_dir: `train.checkpoint_dir` of the new run.

  Raises:
    InputError: no such run, it names modules that aren't imported, or the run
      in `workdir` has begun with something else.
  """
  run = init.run
  if workdir and not is_new(init, workdir, checkpoint_dir):
    run = os.fspath(workdir)
  try:
    own = workdir_lib.load_config(run)
  except errors.InputError as error:
    raise errors.InputError(f'--init_from={init.run!r}: {error}') from error
  theirs = dict(_of_model(own))
  theirs['data.tokenizer'] = own['data']['tokenizer']
  config_lib.override(raw, theirs)


def _of_model(config):
  """Yields (key, value) of OF_MODEL, with the defaults of a new run's rows."""
  sections = {name: config[name] for name in OF_MODEL}
  flat = flax.traverse_util.flatten_dict(sections, sep='.')
  for key, value in flat.items():
    # All of a row, as 0 means, of rows that may have another length here.
    whole = key.endswith('.window') and value == config['data']['length']
    yield key, 0 if whole else value


def is_new(init: Init, workdir: str | os.PathLike, checkpoint_dir: str) -> bool:
  """Returns whether a run has yet to begin; checks one that resumes.

  Args:
    init: what the command asks for.
    workdir: the run's folder.
    checkpoint_dir: `train.checkpoint_dir` of its config.

  Raises:
    InputError: the run has begun with something else.
  """
  if os.path.realpath(init.run) == os.path.realpath(workdir):
    errors.refuse('--init_from', init.run, 'this is --workdir: give a new one')
  folder = workdir_lib.checkpoint_folder(workdir, checkpoint_dir)
  if not workdir_lib.has_checkpoints(folder):
    return True
  record = read(workdir)
  asked = init.asked()
  if any(record.get(key) != value for key, value in asked.items()):
    began = ', '.join(
      f'{key} {record[key]!r}' for key in asked if key in record
    )
    errors.refuse(
      '--init_from',
      init.run,
      f'the run in {str(workdir)!r} has begun already, with '
      f'{began or "parameters of its own"}: leave out the flag to resume it, '
      'or give a new --workdir',
    )
  return False


def write(
  init: Init,
  workdir: str | os.PathLike,
  step: int,
  digest: str,
  names: tuple[Sequence[str], Sequence[str]],
) -> None:
  """Writes init.json.

  Args:
    init: what was asked for.
    workdir: the run's folder.
    step: of the checkpoint that was read.
    digest: SHA-256 of its seal.
    names: of the parameters that were taken, and of those that are new.
  """
  taken, new = names
  record = init.asked() | {'step': step, 'sha256': digest}
  record |= {'taken': [*taken], 'new': [*new]}
  text = json.dumps(record, indent=1) + '\n'
  files.write_whole(pathlib.Path(workdir) / NAME, text)


def read(workdir: str | os.PathLike) -> dict[str, Any]:
  """Returns the record; {} where a run has none.

  Raises:
    InputError: it is damaged; names the key that is wrong.
  """
  path = pathlib.Path(workdir) / NAME
  if not os.path.lexists(path):
    return {}
  with files.reading(path, 'restore a copy'):
    record = files.read_json(path, files.SMALL)
    _check(record)
  return record


def _check(record):
  """Raises ValueError unless a record has the types that `write` writes."""
  if not isinstance(record, dict):
    raise ValueError('no object')
  for name, kinds in TYPES.items():
    if name not in record or type(record[name]) not in kinds:
      raise ValueError(f'{name}={record.get(name)!r:.80}')
    if kinds == (list,) and any(type(x) is not str for x in record[name]):
      raise ValueError(f'{name} is no list of names')
  if record['step'] < 0 or '\0' in record['run']:
    raise ValueError(f'step={record["step"]!r}, run={record["run"]!r:.80}')
