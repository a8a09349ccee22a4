"""TFDS datasets on disk: DATA_DIR/NAME[/CONFIG]/VERSION, as ArrayRecord.

A dataset on disk is opened as it is, whether `launch.prepare` or TFDS wrote it,
even under a name that TFDS knows: its own CIFAR-10 and one prepared here have
the same name and different versions. Its files are data: features.json may name
only TFDS's own classes, because TFDS imports the module of a class that it
doesn't know, and so would run what a stranger wrote.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any

from rnn_jax import errors
from rnn_jax.data.preparation import requests
from rnn_jax.data.text import documents
from rnn_jax.system import files

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

VERSION = re.compile(r'\d+\.\d+\.\d+')
FEATURES = 'features.json'
# Keys of features.json that name a class, in TFDS's form and in its old one.
CLASS_KEYS = ('pythonClassName', 'python_class_name', 'type')
TRUSTED = 'tensorflow_datasets.core.features.'
NAME = re.compile(r'(?P<name>[^/:]+)(/(?P<config>[^/:]+))?(:(?P<version>.+))?')


def open_dataset(name: str, data_dir: str) -> 'tfds.core.DatasetBuilder':
  """Returns the builder of NAME[/CONFIG][:VERSION], by default the newest.

  Raises:
    InputError: `data_dir` has no dataset of that name, it has several configs,
      isn't ArrayRecord, was written by another version of rnn_jax, or lacks a
      file.
  """
  source = f'data.source={f"tfds:{name}"!r} in data.data_dir={data_dir!r}'
  with quiet():
    folder = _folder(name, data_dir, source)
    builder = _open(folder) if folder else _open_by_tfds(name, data_dir, source)
  if builder.info.file_format.value != 'array_record':
    raise errors.InputError(
      f'data.source={f"tfds:{name}"!r}: prepared as '
      f"{builder.info.file_format.value}: prepare it as 'array_record', which "
      'is read without TensorFlow'
    )
  for split in documents.SPLITS:
    _check_files(builder, split)
  return builder


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Suppresses TFDS's warnings about packages that aren't needed here."""
  before = logging.root.manager.disable
  logging.disable(logging.WARNING)
  try:
    yield
  finally:
    logging.disable(before)


@contextlib.contextmanager
def reading(builder: 'tfds.core.DatasetBuilder', split: str) -> Iterator[None]:
  """Names the files in errors within this context.

  Raises:
    InputError: in place of any error of the readers of shards.
  """
  try:
    yield
  except errors.InputError:
    raise
  except Exception as error:
    first, *others = map(os.fspath, builder.info.splits[split].filepaths)
    files = f'{first} or one of {len(others)} more' if others else first
    reason = errors.first_line(error)
    raise errors.InputError(
      f'{files}: cut off or damaged ({reason}): {_again(builder)}'
    ) from None


def _folder(name, data_dir, source):
  """Returns the folder of a dataset on disk, or None."""
  parts = NAME.fullmatch(name)
  if not parts:
    return None
  root = os.path.join(_data_dir(data_dir), parts['name'])
  folders = _versions(os.path.join(root, parts['config'] or ''))
  if not folders and not parts['config']:
    configs = [each for each in _folders(root) if _versions(f'{root}/{each}')]
    if len(configs) > 1:
      raise errors.InputError(
        f'{source}: there are the configs {configs}: name one, as in '
        f"'tfds:{parts['name']}/{configs[0]}'"
      )
    folders = [v for each in configs for v in _versions(f'{root}/{each}')]
  version = parts['version']
  folders = [f for f in folders if version in (None, os.path.basename(f))]
  return folders[-1] if folders else None


def _data_dir(data_dir):
  if data_dir:
    return os.path.expanduser(data_dir)
  import tensorflow_datasets as tfds

  return os.path.expanduser(tfds.core.constants.DATA_DIR)


def _folders(path):
  return sorted(os.listdir(path)) if os.path.isdir(path) else []


def _versions(path):
  """Returns the folders of versions in a folder, the newest last."""
  names = [name for name in _folders(path) if VERSION.fullmatch(name)]
  names.sort(key=lambda name: [*map(int, name.split('.'))])
  return [os.path.join(path, name) for name in names]


def _open(folder):
  import tensorflow_datasets as tfds

  if os.path.exists(os.path.join(folder, requests.RECORD)):
    requests.read_record(folder)
  _check_features(os.path.join(folder, FEATURES))
  try:
    return tfds.builder_from_directory(folder)
  except Exception as error:
    raise errors.InputError(
      f'{folder}: incomplete dataset ({errors.first_line(error)}): remove it '
      'and prepare it again, see launch.prepare --help'
    ) from None


def _check_features(path):
  """Refuses features of a class that isn't TFDS's own."""
  if not os.path.lexists(path):
    return  # TFDS says what is missing
  remedy = 'prepare the dataset again, see launch.prepare --help'
  with files.reading(path, remedy):
    features = files.read_json(path)
  for name in _class_names(features):
    if not (isinstance(name, str) and name.startswith(TRUSTED)):
      raise errors.InputError(
        f'{path}: the feature class {name!r} is not one of TFDS, and importing '
        'it would run its code: prepare the dataset with features of '
        f'{TRUSTED.rstrip(".")}'
      )


def _class_names(features: Any) -> Iterator[Any]:
  """Yields the values of all keys that name a class."""
  waiting = [features]
  while waiting:
    value = waiting.pop()
    if isinstance(value, dict):
      yield from (value[key] for key in CLASS_KEYS if key in value)
      waiting += value.values()
    elif isinstance(value, list):
      waiting += value


def _open_by_tfds(name, data_dir, source):
  """Returns the dataset that TFDS itself finds, by one of its own classes."""
  import tensorflow_datasets as tfds

  parts = NAME.fullmatch(name)
  if parts and parts['version'] and not VERSION.fullmatch(parts['version']):
    raise errors.InputError(
      f'{source}: {parts["version"]!r} is no version such as 1.0.0, and of a '
      'namespace TFDS would download a package and run it: prepare the data '
      'yourself, see launch.prepare --help'
    )
  reason = 'nothing is prepared there'
  try:
    builder = tfds.builder(name, data_dir=data_dir or None)
    if os.path.isdir(builder.data_dir) and builder.info.splits:
      return builder
  except Exception as error:
    reason = errors.first_line(error)
  raise errors.InputError(f'{source}: {reason}: see launch.prepare --help')


def _check_files(builder, split):
  if split not in builder.info.splits:
    return
  for path in map(os.fspath, builder.info.splits[split].filepaths):
    if not os.path.exists(path):
      raise errors.InputError(f'{path} is missing: {_again(builder)}')


def _again(builder):
  return (
    f'copy it again, or remove {os.fspath(builder.data_dir)} and prepare it '
    'again, see launch.prepare --help'
  )
