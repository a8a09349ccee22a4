"""The command that trains on a prepared dataset, to paste into a shell.

What the columns are decides the config:

    texts with classes      text_classification.py
    lists of texts          daily_dialog.py
    other texts             stdlib_bytes.py
    images with classes     cifar10_bdh.py, or digits_bdh.py if they are gray
"""

import itertools
import pathlib
import shlex
from typing import TYPE_CHECKING
from typing import Any

from rnn_jax.data import columns
from rnn_jax.data.images import codec
from rnn_jax.data.preparation import lengths
from rnn_jax.data.preparation import prepared
from rnn_jax.data.preparation import requests
from rnn_jax.system import shipped

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

CONFIGS = shipped.ROOT / 'configs'
TURNS = 'turns'  # the column that daily_dialog.py reads
PATCH = 4  # pixels: both configs of images cut them into such patches
SIZE = 32  # pixels of each side that images get if theirs don't do
SEEN = 200  # images whose size is read

Flags = dict[str, Any]  # key of the config to its value


def command(request: requests.Request, record: dict[str, Any]) -> str:
  """Returns a line for a shell, or '' if no config fits the columns.

  Args:
    request: what was prepared.
    record: the content of preparation.json.

  Raises:
    InputError: the dataset can't be opened.
  """
  builder = prepared.open_dataset(request.name, request.data_dir)
  name, chosen = _config(builder, record)
  if not name:
    return ''
  flags = {'data.source': f'tfds:{request.name}'}
  flags |= {'data.data_dir': request.data_dir} | chosen
  if 'validation' not in record['examples']:
    flags['data.splits'] = '(90, 10, 0)'
  words = ['python', '-m', 'launch.train', f'--config={_path(name)}']
  words += [f'--config.{key}={value}' for key, value in flags.items()]
  return shlex.join([*words, f'--workdir=runs/{request.name}'])


def _path(name):
  """Returns the path of a config, relative if it is below this folder."""
  path = CONFIGS / f'{name}.py'
  here = pathlib.Path.cwd()
  return path.relative_to(here) if path.is_relative_to(here) else path


def _config(
  builder: 'tfds.core.DatasetBuilder', record: dict[str, Any]
) -> tuple[str, Flags]:
  """Returns (the name of a config, what to change in it); ('', {}): none."""
  kinds = {name: _kind(x) for name, x in builder.info.features.items()}
  by_kind: dict[str, list[str]] = {}
  for name, kind in kinds.items():
    by_kind.setdefault(kind, []).append(name)
  labelled = bool(record['label'])
  if labelled and (names := by_kind.get('Image')):
    return _of_images(builder, names[0])
  lists = by_kind.get('list', [])
  if lists and not labelled:
    return 'daily_dialog', {} if TURNS in lists else {'data.field': lists[0]}
  texts = [*by_kind.get('Text', ()), *lists]
  if texts := [name for name in texts if name != columns.ID]:
    name = 'text_classification' if labelled else 'stdlib_bytes'
    return name, _field(builder, texts, record)
  return '', {}


def _kind(feature):
  """Returns 'Text', 'Image', 'ClassLabel'...; 'list' of a list of texts."""
  kind = type(feature).__name__  # TFDS is slow to import
  inner = getattr(feature, 'feature', None)
  return 'list' if type(inner).__name__ == 'Text' else kind


def _field(builder, texts, record):
  """Names the longest of several columns of text."""
  if columns.TEXT in texts or len(texts) == 1:
    return {}
  recorded = record['lengths'].get('train', {})  # those that vary
  by_words = {
    name: recorded[counted]['median']
    for name in sorted(texts)  # the dataset's own order is not always the same
    if (counted := lengths.words(name)) in recorded
  }
  same = [name for name in sorted(texts) if name not in by_words]
  by_words |= _words_of_first(builder, same) if same else {}
  return {'data.field': max(by_words, key=by_words.__getitem__)}


def _words_of_first(builder, names):
  """Counts the words of columns in the first example of training."""
  with prepared.quiet(), prepared.reading(builder, 'train'):
    row = next(iter(builder.as_data_source('train')))
  texts = {name: row[name] for name in names}
  return {
    name: sum(len(t.split()) for t in ([x] if isinstance(x, bytes) else x))
    for name, x in texts.items()
  }


def _of_images(builder, name):
  channels = builder.info.features[name].shape[-1]
  sizes, all_seen = _sizes(builder, name)
  width, height = sizes[0]
  fits = width == height and width % PATCH == 0 and width <= 2 * SIZE
  flags = {} if name == columns.IMAGE else {'data.field': name}
  flags |= {
    'data.classes': '()',  # those of the dataset
    'data.image.size': width if fits else SIZE,
    'data.image.resize': not (fits and all_seen and len({*sizes}) == 1),
  }
  return 'digits_bdh' if channels == 1 else 'cifar10_bdh', flags


def _sizes(builder, name):
  """Returns (sizes of images in training, whether these are all)."""
  import tensorflow_datasets as tfds

  with prepared.quiet(), prepared.reading(builder, 'train'):
    encoded = {name: tfds.decode.SkipDecoding()}
    source = builder.as_data_source('train', decoders=encoded)
    sizes = []
    for row in itertools.islice(source, SEEN):
      with codec.opened(row[name], name) as image:
        sizes.append(image.size)
  return sizes, len(builder.info.splits) == 1 and len(sizes) == len(source)
