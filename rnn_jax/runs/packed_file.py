"""A model's packed parameters in a file: WORKDIR/weights/FORMAT.safetensors.

The matrices are as products read them (ops/products/native.py), all else is
float32, and layers are stacked as in training. An array has the name of its
parameter, joined by dots; of a packed one, `.numbers` and `.scales` follow.
The file is mapped (system/mapped_tensors.py), which takes no second copy.

The metadata say what the file was made of:

    format      'rnn_jax weights'
    version     '1', of the layout in ops/products/native.py
    weights     one of products.FORMATS
    model       the config's sections that parameters depend on, in JSON; a key
                of a later version has its default
    tokenizer   SHA-256 of the tokenizer's spec
    step        of the checkpoint; 0 in a folder of its own
    checkpoint  SHA-256 of the checkpoint's seal; '' in a folder of its own
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import packed_weights
from rnn_jax.ops import products
from rnn_jax.runs import origin
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import bounds
from rnn_jax.system import files
from rnn_jax.system import mapped_tensors

PyTree = Any
NAME = 'rnn_jax weights'
VERSION = '1'
MODEL = 'model'  # key of the metadata
PARTS = 'numbers', 'scales'  # of a packed matrix
REMEDY = 'delete it, or write it again with launch.quantize'


@dataclasses.dataclass(frozen=True)
class Source:
  """What a file was made of.

  Attributes:
    step: of the checkpoint.
    checkpoint: SHA-256 of its seal; '': the folder has no checkpoint.
  """

  step: int = 0
  checkpoint: str = ''


def path_of(workdir: str | os.PathLike, weights: str) -> pathlib.Path:
  """Returns where a folder has its parameters in a format."""
  name = f'{weights}{mapped_tensors.SUFFIX}'
  return pathlib.Path(workdir) / workdir_lib.WEIGHTS / name


def best_of(workdir: str | os.PathLike) -> str:
  """Returns the format with the most bits that a folder has; '': none."""
  there = (x for x in products.FORMATS if os.path.lexists(path_of(workdir, x)))
  return next(there, '')


def facts(
  weights: str,
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  source: Source,
) -> dict[str, str]:
  """Returns the metadata of a file in a format."""
  made_of = {'step': str(source.step), 'checkpoint': source.checkpoint}
  return _lasting(weights, config, tokenizer) | made_of


def write(
  workdir: str | os.PathLike, params: PyTree, facts: Mapping[str, str]
) -> pathlib.Path:
  """Writes parameters to a folder. Returns the file.

  Args:
    workdir: the folder.
    params: of packed_weights.panels, in NumPy arrays.
    facts: the metadata.

  Raises:
    OSError: the file can't be written.
  """
  path = path_of(workdir, facts['weights'])
  path.parent.mkdir(exist_ok=True)
  mapped_tensors.write(path, _flat(params), facts)
  return path


class File:
  """A file of packed parameters, whose metadata are checked."""

  def __init__(
    self,
    workdir: str | os.PathLike,
    weights: str,
    config: config_lib.Config,
    tokenizer: tokenizer_lib.Tokenizer,
  ) -> None:
    """Opens the file of a folder in a format.

    Raises:
      InputError: it is damaged, of another version, or of another config or
        tokenizer than these.
    """
    self.path = path_of(workdir, weights)
    with files.reading(self.path, REMEDY):
      self._tensors = mapped_tensors.Tensors(self.path, within=workdir)
      found = self._tensors.metadata
      for key, wanted in _lasting(weights, config, tokenizer).items():
        own = found.get(key)
        if own != wanted and not (key == MODEL and _is_of(config, own)):
          _refuse(self.path, key, own, wanted)
      self.source = Source(int(found['step']), found['checkpoint'])

  @property
  def digest(self) -> str:
    """SHA-256 of the file's content."""
    return self._tensors.metadata[mapped_tensors.DIGEST]

  def params(self, shapes: PyTree) -> PyTree:
    """Returns the parameters, as NumPy arrays in the pages of the file.

    Args:
      shapes: of the model's parameters, as jax.ShapeDtypeStructs.

    Raises:
      InputError: the file has others, or isn't what was written.
    """
    weights = self._tensors.metadata['weights']
    like = packed_weights.panels_like(shapes, weights)
    bounds.check_arrays(like, f'parameters of {self.path}')
    arrays, wanted = self._tensors.arrays, _flat(like)
    with files.reading(self.path, REMEDY):
      for name in sorted({*arrays, *wanted}):
        found, expected = (_kind(x.get(name)) for x in (arrays, wanted))
        if found != expected:
          raise ValueError(f'{name} is {found}, expected {expected}')
      self._tensors.check_digest()
    names = _names(like)
    return jax.tree.unflatten(
      jax.tree.structure(like), [arrays[name] for name in names]
    )


def _refuse(path, key, found, wanted):
  if key in (MODEL, 'tokenizer'):
    found, wanted = 'of another one', "the folder's"
  raise errors.InputError(f'{path}: {key} is {found!r}, not {wanted}: {REMEDY}')


def _lasting(weights, config, tokenizer):
  """Returns what a file and the folder that it is in must agree in."""
  return {
    'format': NAME,
    'version': VERSION,
    'weights': weights,
    MODEL: _json(_model(config_lib.to_dict(config))),
    'tokenizer': hashlib.sha256(_json(tokenizer.spec()).encode()).hexdigest(),
  }


def _model(raw):
  return {name: raw[name] for name in origin.OF_MODEL}


def _is_of(config, text):
  """Whether the sections of an earlier version are those of a config."""
  sections = json.loads(text or '')
  if not (isinstance(sections, dict) and {*sections} == {*origin.OF_MODEL}):
    return False
  raw = config_lib.to_dict(config)
  return _json(_model(config_lib.completed(raw | sections))) == _json(
    _model(raw)
  )


def _json(value):
  return json.dumps(value, sort_keys=True)


def _flat(params) -> Mapping[str, np.ndarray]:
  """Returns the arrays by name."""
  return dict(zip(_names(params), jax.tree.leaves(params), strict=True))


def _names(params):
  """Returns the names of the leaves, in their order."""
  paths, _ = jax.tree.flatten_with_path(params)
  return ['.'.join(_keys(path)) for path, _ in paths]


def _keys(path):
  for key in path:
    if isinstance(key, jax.tree_util.DictKey):
      yield key.key
    elif isinstance(key, jax.tree_util.SequenceKey):  # of Packed.arrays
      yield PARTS[key.idx]


def _kind(x):
  return 'missing' if x is None else f'{np.dtype(x.dtype)}{tuple(x.shape)}'
