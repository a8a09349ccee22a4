"""A model without a run: its config, its tokenizer, and its parameters.

Formats (rnn_jax/interop/formats) read and write bundles. The work folder of a
bundle is that of a run before its first step: config.json, tokenizer.json and
a checkpoint of step 0 with only parameters. Training in it starts from them;
whatever restores a checkpoint's parameters works on it as well. That of packed
parameters has a file of packed_file.py in place of the checkpoint.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax
import numpy as np
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.config import values
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import adapters
from rnn_jax.models import packed_weights
from rnn_jax.runs import base_model
from rnn_jax.runs import calibration
from rnn_jax.runs import origin
from rnn_jax.runs import packed_file
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import checksums
from rnn_jax.runs.checkpoints import remote
from rnn_jax.runs.checkpoints import sections
from rnn_jax.system import bounds
from rnn_jax.system import files

SEPARATOR = '.'
KEPT = 'converted_from'  # folder with the files of another format
DTYPES = 'dtypes.json'  # among them: the tensors of 16 bits
SHOWN = 10  # tensors that a message names
SIZED = ('bpe', 'numbers', 'pretrained')  # tokenizers that read data.vocabulary

PyTree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Bundle:
  """A model.

  Attributes:
    config: of the run.
    tokenizer: of the run.
    params: a tree of NumPy arrays like that of training; matrices may be packed
      (models/packed_weights.py).
    step: of the checkpoint that it was read from.
    kept: texts by file name, of the format that it came in.
    temperature: of its probabilities of classes (runs/calibration.py); None:
      they aren't calibrated.
  """

  config: config_lib.Config
  tokenizer: tokenizer_lib.Tokenizer
  params: PyTree
  step: int = 0
  kept: Mapping[str, str] = dataclasses.field(default_factory=dict)
  temperature: float | None = None


def make(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  params: PyTree,
  expected: PyTree | None = None,
) -> Bundle:
  """Returns a bundle whose config names the tokenizer's kind.

  Args:
    config: of the run.
    tokenizer: of the run.
    params: a tree of NumPy arrays.
    expected: the result of `like`, if it is known.

  Raises:
    InputError: the parameters aren't those of the config's model.
  """
  kind = tokenizer.spec()['kind']
  data = dataclasses.replace(config.data, tokenizer=kind)
  if kind in SIZED:
    data = dataclasses.replace(data, vocabulary=tokenizer.size)
  config = dataclasses.replace(config, data=data)
  if expected is None:
    expected = like(config, tokenizer)
  shapes = {name: x.shape for name, x in flat(expected).items()}
  check(flat(params), shapes, 'the model')
  return Bundle(config, tokenizer, params)


def check(
  tensors: Mapping[str, Any],
  expected: Mapping[str, tuple[int, ...]],
  source: str,
  shown: int | None = SHOWN,
) -> None:
  """Checks the names and shapes of a model's tensors.

  Args:
    tensors: arrays by name.
    expected: shapes by name.
    source: of the tensors, for the message.
    shown: how many tensors the message names; None: all.

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
    listed = '\n  '.join(
      lines[:shown] + ['...'] * (len(lines) > len(lines[:shown]))
    )
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


def read(
  workdir: str | os.PathLike,
  which: str | int,
  calibrated: bool = True,
  weights: str = '',
) -> Bundle:
  """Returns the model of a run's checkpoint.

  A run with adapters has the model that they change, with their changes: one of
  the same kind without adapters.

  Args:
    workdir: the run's folder.
    which: 'best', 'latest' or a step.
    calibrated: whether its temperature is read as well.
    weights: a format in which the parameters are wanted. They are packed if the
      folder has a file of them, which is mapped; else, and by default, they
      are float32.

  Raises:
    InputError: no such run or checkpoint, the model doesn't fit in memory, or
      the run's calibration or its file of packed parameters is damaged.
  """
  config, tokenizer = open_folder(workdir)
  calibrated = calibrated and calibration.has_probabilities(config.task)
  if calibrated:
    calibration.read(workdir)  # refuses a damaged one before the parameters
  bundle = None
  if weights and os.path.lexists(packed_file.path_of(workdir, weights)):
    bundle = _read_packed(workdir, config, tokenizer, which, weights)
  bundle = bundle or _read(workdir, which, ())
  if not calibrated:
    return bundle
  temperature = temperature_of(workdir, config, bundle.step)
  return dataclasses.replace(bundle, temperature=temperature)


def _read_packed(workdir, config, tokenizer, which, weights):
  """Returns the model of a packed file; None: it is of another checkpoint."""
  file = packed_file.File(workdir, weights, config, tokenizer)
  source = _source(workdir, config, which)
  if file.source != source:
    logging.warning(
      '%s is of another checkpoint (step %d) than that of step %d, which is '
      'read and packed: launch.quantize writes a new file',
      file.path,
      file.source.step,
      source.step,
    )
    return None
  params = file.params(like(config, tokenizer))
  params = jax.device_get(packed_weights.for_this_machine(params))
  kept = _read_kept(workdir)
  return Bundle(_merged(workdir, config), tokenizer, params, source.step, kept)


def _source(workdir, config, which):
  """Returns what a packed file of that checkpoint was made of."""
  if _only_packed(workdir, config):
    _check_which(workdir, which)
    return packed_file.Source()
  folder = workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
  checkpoints = checkpoint.Checkpoints(folder)
  try:
    step = checkpoints.step(checkpoint.parse_which(which))
  finally:
    checkpoints.close()
  try:
    return packed_file.Source(step, digest(workdir, config, step))
  except OSError:
    return packed_file.Source(step)  # what reads it says what it lacks


def _only_packed(workdir, config):
  """Returns the format of a folder without a checkpoint; '': it has one."""
  weights = packed_file.best_of(workdir)
  folder = workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
  if not weights or workdir_lib.has_checkpoints(folder):
    return ''
  return weights


def _check_which(workdir, which):
  if checkpoint.parse_which(which) not in ('best', 'latest', 0):
    raise errors.InputError(
      f'no checkpoint of step {which} in {workdir}: it has packed weights, of '
      "step 0: give 'best'"
    )


def _merged(workdir, config):
  """Returns the config of a run's model with its adapters merged."""
  if not config.adapters.rank:
    return config
  record = origin.read(workdir)
  return dataclasses.replace(
    config,
    adapters=config_adapters.Adapters(),
    task=config.task.merged(record['run'], record['step']),
  )


def _read(workdir, which, seen):
  config, tokenizer = open_folder(workdir)
  wanted = like(config, tokenizer)
  sizes = values.largest_sizes(config)
  bounds.check_arrays(wanted, f'parameters of {workdir} with {sizes}')
  options = config.adapters
  if options.rank:
    wanted = {**wanted, adapters.KEY: base_model.changes_like(wanted, options)}
  step, state = restore(workdir, config, {'params': wanted}, which, seen)
  params = state['params']
  if options.rank:
    merge = jax.jit(functools.partial(adapters.merge, options=options))
    params = merge(*jax.device_put(adapters.split(params)))
  params, kept = jax.device_get(params), _read_kept(workdir)
  return Bundle(_merged(workdir, config), tokenizer, params, step, kept)


def restore(
  workdir: str | os.PathLike,
  config: config_lib.Config,
  like: Mapping[str, PyTree],
  which: str | int,
  seen: tuple[str, ...] = (),
) -> tuple[int, dict[str, PyTree]]:
  """Reads fields of a train state from a run's checkpoint.

  Of a folder of packed parameters, these in float32.

  Args:
    workdir: the run's folder.
    config: of the run.
    like: {name of a field: shapes, dtypes and shardings of what is read}.
    which: 'best', 'latest' or a step.
    seen: runs with adapters that change the model of this one.

  Returns:
    The step, and the fields by name; whole parameters of a run with adapters.

  Raises:
    InputError: no such checkpoint, it doesn't fit `like`, or the model that
      adapters change isn't what it was.
  """
  if weights := _only_packed(workdir, config):
    _check_which(workdir, which)
    return 0, _unpacked(workdir, config, weights, like)
  checkpoints = checkpoint.Checkpoints(
    workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
  )
  try:
    return checkpoints.read(
      table(workdir, config.adapters, like, seen),
      checkpoint.parse_which(which),
    )
  finally:
    checkpoints.close()


def _unpacked(workdir, config, weights, like):
  """Returns the fields of a folder that has packed parameters only."""
  if lacking := sorted({*like} - {'params'}):
    raise errors.InputError(
      f'{workdir} has packed weights only, without {lacking}: give a run with '
      'checkpoints'
    )
  _, tokenizer = open_folder(workdir)
  file = packed_file.File(workdir, weights, config, tokenizer)
  wanted = like['params']
  where = jax.tree.map(lambda x: getattr(x, 'sharding', None), wanted)
  packed = jax.device_put(file.params(wanted))
  return {'params': jax.jit(packed_weights.unpack, out_shardings=where)(packed)}


def table(
  workdir: str | os.PathLike,
  options: config_adapters.Adapters,
  like: Mapping[str, PyTree],
  seen: tuple[str, ...] = (),
) -> tuple[sections.Section, ...]:
  """Returns the sections of a run's fields.

  Args:
    workdir: the run's folder.
    options: section `adapters` of its config.
    like: as of `restore`.
    seen: as of `restore`.
  """
  plain = sections.of_state(like)
  if not options.rank:
    return plain

  def read_run(run, step, seen):
    model = _read(run, step, seen)
    leaves = flax.traverse_util.flatten_dict(model.params, sep='/')
    return leaves, digest(run, model.config, step)

  def read_model(shapes):
    return base_model.read(workdir, options, shapes, read_run, seen)

  return tuple(
    sections.Adapters(x.like, options, read_model) if x.name == 'params' else x
    for x in plain
  )


def temperature_of(
  workdir: str | os.PathLike, config: config_lib.Config, step: int
) -> float | None:
  """Returns the temperature of a checkpoint; None: it isn't calibrated.

  Raises:
    InputError: the run's calibration is damaged.
  """
  if not calibration.has_probabilities(config.task):
    return None
  seal = functools.partial(digest, workdir, config, step)
  return calibration.of(workdir, step, seal)


def open_folder(
  workdir: str | os.PathLike,
) -> tuple[config_lib.Config, tokenizer_lib.Tokenizer]:
  """Returns the config and the tokenizer of a run."""
  config = config_lib.parse(workdir_lib.load_config(workdir))
  path = pathlib.Path(workdir) / 'tokenizer.json'
  if not path.exists():
    raise errors.InputError(f'{path} is missing: train first')
  return config, tokenizer_lib.load(path)


def _read_kept(workdir):
  folder = pathlib.Path(workdir) / KEPT
  paths = sorted(folder.iterdir()) if folder.is_dir() else []
  texts = {}
  for path in paths:
    with files.reading(path, 'put a text file there, or remove it'):
      texts[path.name] = files.read_text(path, files.SMALL, within=workdir)
  return texts


def keep(kept: Mapping[str, str], workdir: str | os.PathLike) -> None:
  """Writes the files of another format into a run's folder.

  A run that trains the model further keeps them but DTYPES: its numbers have
  more digits.
  """
  folder = pathlib.Path(workdir) / KEPT
  for name, text in kept.items():
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding='utf-8', newline='')


def digest(
  workdir: str | os.PathLike, config: config_lib.Config, step: int
) -> str:
  """Returns the SHA-256 of a checkpoint's seal, which has its files' own.

  Of a folder of packed parameters, that of their file.
  """
  if weights := _only_packed(workdir, config):
    _, tokenizer = open_folder(workdir)
    return packed_file.File(workdir, weights, config, tokenizer).digest
  folder = workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
  seal = remote.path(folder) / str(step) / checksums.NAME
  try:
    return hashlib.sha256(remote.read_bytes(seal)).hexdigest()
  except ValueError as error:
    raise errors.InputError(f'{seal}: {error}: restore a copy') from error


def write(
  bundle: Bundle, workdir: str | os.PathLike, weights: str = ''
) -> None:
  """Makes a work folder, which is complete or absent at any time.

  The checkpoint is in the folder, whatever the config's train.checkpoint_dir.

  Args:
    bundle: the model.
    workdir: the folder.
    weights: the format of parameters of packed_weights.panels, which are
      written in place of a checkpoint; '': they are float32.

  Raises:
    InputError: the folder exists and isn't empty, or can't be made.
  """
  folder = check_absent(workdir)
  try:
    with files.whole_folder(folder) as part:
      _fill(bundle, part, weights)
  except OSError as error:
    raise errors.InputError(
      f'workdir={str(workdir)!r}: {error.strerror}: give a folder that can be '
      'written'
    ) from error


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


def write_packed(
  bundle: Bundle, workdir: str | os.PathLike, weights: str
) -> pathlib.Path:
  """Writes packed parameters of a run's checkpoint next to it.

  Args:
    bundle: of that checkpoint, with parameters of packed_weights.panels.
    workdir: the run's folder.
    weights: their format.

  Returns:
    The file.

  Raises:
    InputError: it can't be written.
  """
  config, tokenizer = open_folder(workdir)
  source = _source(workdir, config, bundle.step)
  facts = packed_file.facts(weights, config, tokenizer, source)
  try:
    return packed_file.write(workdir, bundle.params, facts)
  except OSError as error:
    raise errors.InputError(
      f'workdir={str(workdir)!r}: {error.strerror}: give --output, a folder '
      'that can be written'
    ) from error


def _fill(bundle, folder, weights):
  train = dataclasses.replace(bundle.config.train, checkpoint_dir='')
  config = dataclasses.replace(bundle.config, train=train)
  config = workdir_lib.dump(config_lib.to_dict(config))
  (folder / workdir_lib.CONFIG).write_text(config, encoding='utf-8')
  bundle.tokenizer.save(folder / 'tokenizer.json')
  keep(bundle.kept, folder)
  if weights:
    source = packed_file.Source()
    facts = packed_file.facts(weights, bundle.config, bundle.tokenizer, source)
    packed_file.write(folder, bundle.params, facts)
    return
  checkpoints = checkpoint.Checkpoints(folder / workdir_lib.CHECKPOINTS, keep=1)
  try:
    checkpoints.save_params(0, jax.tree.map(np.asarray, bundle.params))
  finally:
    checkpoints.close()
