"""A model without a run: its config, its tokenizer, and its parameters.

Formats (rnn_jax/interop/formats) read and write bundles. The work folder of a
bundle is that of a run before its first step: config.json, tokenizer.json and
a checkpoint of step 0 with only parameters. Training in it starts from them;
whatever restores a checkpoint's parameters works on it as well.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax
import numpy as np

from rnn_jax import bounds
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint

SEPARATOR = '.'
SHOWN = 10  # tensors that a message names
SIZED = ('bpe', 'numbers')  # tokenizers that read data.vocabulary

PyTree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Bundle:
  """A model. `params` is a tree of NumPy arrays like that of training.

  `step` is that of the checkpoint that it was read from.
  """

  config: config_lib.Config
  tokenizer: tokenizer_lib.Tokenizer
  params: PyTree
  step: int = 0


def make(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  params: PyTree,
) -> Bundle:
  """Returns a bundle whose config names the tokenizer's kind.

  Raises:
    InputError: the parameters aren't those of the config's model.
  """
  kind = tokenizer.spec()['kind']
  data = dataclasses.replace(config.data, tokenizer=kind)
  if kind in SIZED:
    data = dataclasses.replace(data, vocabulary=tokenizer.size)
  config = dataclasses.replace(config, data=data)
  expected = {k: x.shape for k, x in flat(like(config, tokenizer)).items()}
  check(flat(params), expected, 'the model')
  return Bundle(config, tokenizer, params)


def check(
  tensors: Mapping[str, Any],
  expected: Mapping[str, tuple[int, ...]],
  source: str,
) -> None:
  """Checks the names and shapes of a model's tensors.

  Args:
    tensors: arrays by name.
    expected: shapes by name.
    source: of the tensors, for the message.

  Raises:
    InputError: names each tensor that is missing, unexpected or of another
      shape, with its shape and the expected one.
  """
  lines = []
  for name in sorted({**tensors, **expected}):
    if name not in tensors:
      lines.append(f'{name}: missing, expected {tuple(expected[name])}')
      continue
    shape = tuple(tensors[name].shape)
    if name not in expected:
      lines.append(f'{name}: {shape}, expected none')
    elif shape != tuple(expected[name]):
      lines.append(f'{name}: {shape}, expected {tuple(expected[name])}')
  if lines:
    listed = '\n  '.join(lines[:SHOWN] + ['...'] * (len(lines) > SHOWN))
    raise errors.InputError(
      f'{source} and its config name different tensors:\n  {listed}\n'
      'give the config that the tensors were made with'
    )


def like(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> PyTree:
  """Returns the shapes and dtypes of a config's parameters."""
  task = make_task(config, tokenizer)
  return jax.eval_shape(lambda: task.init_parameters(jax.random.key(0)))


def make_task(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> Any:
  """Returns the task of a config, with its `model`; without a teacher."""
  tasks = config_lib.load('tasks', config.task.name, 'task.name')
  return tasks.make(config, tokenizer)


def flat(params: PyTree) -> dict[str, Any]:
  """Returns the leaves by their path, as 'stack.blocks.cell.output.bias'."""
  return flax.traverse_util.flatten_dict(params, sep=SEPARATOR)


def nested(leaves: dict[str, Any]) -> PyTree:
  """Returns the parameters; the inverse of `flat`."""
  return flax.traverse_util.unflatten_dict(leaves, sep=SEPARATOR)


def read(workdir: str | os.PathLike, which: str | int) -> Bundle:
  """Returns the model of a run's checkpoint.

  Args:
    workdir: the run's folder.
    which: 'best', 'latest' or a step.

  Raises:
    InputError: no such run or checkpoint, or the model doesn't fit in memory.
  """
  which = checkpoint.parse_which(which)
  config = config_lib.parse(workdir_lib.load_config(workdir))
  path = pathlib.Path(workdir) / 'tokenizer.json'
  if not path.exists():
    raise errors.InputError(f'{path} is missing: train first')
  tokenizer = tokenizer_lib.load(path)
  expected = like(config, tokenizer)
  bounds.check_model(config, expected, f'parameters of {workdir}')
  checkpoints = checkpoint.Checkpoints(
    workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
  )
  try:
    step, params = checkpoints.restore_parameters(expected, which)
  finally:
    checkpoints.close()
  return Bundle(config, tokenizer, jax.device_get(params), step)


def write(bundle: Bundle, workdir: str | os.PathLike) -> None:
  """Makes a work folder, which is complete or absent at any time.

  Parameters may be packed in 8 bits (models/int8_weights.py). The checkpoint is
  in the folder, whatever the config's train.checkpoint_dir.

  Raises:
    InputError: the folder exists and isn't empty, or can't be made.
  """
  folder = check_absent(workdir)
  part = folder.with_name(f'{folder.name}.{os.getpid()}.part')
  try:
    part.mkdir(parents=True)
    _fill(bundle, part)
    os.replace(part, folder)
  except OSError as error:
    raise errors.InputError(
      f'workdir={str(workdir)!r}: {error.strerror}: give a folder that can be '
      'written'
    ) from error
  finally:
    shutil.rmtree(part, ignore_errors=True)


def check_absent(workdir: str | os.PathLike) -> pathlib.Path:
  """Returns the path of a folder that doesn't exist, or is empty.

  Raises:
    InputError: it is a file, or has files.
  """
  folder = pathlib.Path(workdir).absolute()
  if folder.exists() and not (folder.is_dir() and not os.listdir(folder)):
    raise errors.InputError(
      f'workdir={str(workdir)!r} exists already: give a new or an empty folder'
    )
  return folder


def _fill(bundle, folder):
  train = dataclasses.replace(bundle.config.train, checkpoint_dir='')
  config = dataclasses.replace(bundle.config, train=train)
  config = workdir_lib.dump(config_lib.to_dict(config))
  (folder / workdir_lib.CONFIG).write_text(config, encoding='utf-8')
  bundle.tokenizer.save(folder / 'tokenizer.json')
  checkpoints = checkpoint.Checkpoints(folder / workdir_lib.CHECKPOINTS, keep=1)
  try:
    params = jax.tree.map(np.asarray, bundle.params)
    checkpoints.save(0, {'params': params}, None, {})
  finally:
    checkpoints.close()
